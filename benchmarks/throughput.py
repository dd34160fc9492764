"""Training throughput on 2 processes: the trainer as users run it, a bare DDP loop, Lightning Fabric and Accelerate.

    python -m benchmarks.throughput [--quick]

All train recipe `digits` with the same batch, optimizer (AdamW, fused), clipping and schedule. All contenders call
the same model(), which lays out the weights channels-last, and none changes the layout itself.

Muster also writes its metrics and, every 100 steps, a checkpoint; in each step its ranks agree on the mean loss and on
whether to stop. The rivals are written as their documentation shows, and print a loss every ten steps.

Two runs of one program differ by more than the contenders do, because the cores are shared. So all four start, and then
take turns, in rotating order, while the others are stopped (gpu_check/turns.py). A round is one turn of each; a ratio
is the median over the rounds of several starts.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from gpu_check.checks.throughput import OURS, RIVALS
from gpu_check.turns import Contender, in_turns

BATCH = 96
# This counts as equal: on shared cores the medians of two runs of the same program differ by this much.
LEVEL = 0.95


def measure(quick: bool) -> dict[str, Any]:
    """Milliseconds per step, checkpoints and metrics included; a ratio above 1 means that Muster is faster."""
    starts, turns = (1, 3) if quick else (4, 5)
    taken: dict[str, list[float]] = {}
    with nodes.scratch() as scratch:
        for start in range(starts):
            with ExitStack() as stack:
                for name, times in in_turns(_contenders(stack, scratch / str(start)), turns).items():
                    taken[name] = taken.get(name, []) + times
            texts = ", ".join(f"{name} {statistics.median(times):.2f}" for name, times in taken.items())
            say(f"throughput, {start + 1}/{starts}: {texts} ms a step")
    ours = taken.pop(OURS)
    rate = BATCH / statistics.median(ours) * 1e3
    notes = [
        f"channels-last for all: Muster {rate:,.0f} samples/s; {len(ours)} rounds of {starts} starts",
        "times: median (least-most); ratios: median (middle half) of the rounds",
    ]
    return result([_row(name, ours, theirs) for name, theirs in taken.items()], notes)


def _contenders(stack: ExitStack, folder: Path) -> dict[str, Contender]:
    arguments = ["--steps", "1000000", "--recipe", "digits"]
    # A long timeout, because a rank that is stopped while the others start is not lost.
    options = ["--eval-every", "0", "--checkpoint-every", "100", "--timeout", "600"]
    run = stack.enter_context(nodes.ours(folder / "ours", 1, [*arguments, *options], ranks=2))
    made = {OURS: Contender(run, run.metrics)}
    for name, module in RIVALS.values():
        run = stack.enter_context(nodes.rival(folder / module, 1, f"benchmarks.rivals.{module}", arguments, ranks=2))
        made[name] = Contender(run, run.console_lines)
    return made


def _row(name: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    low, ratio, high = statistics.quantiles([other / own for own, other in zip(ours, theirs, strict=True)], n=4)
    return Row(
        f"throughput against {name}, channels-last for both",
        f"{spread(ours)} ms/step",
        f"{spread(theirs)} ms/step",
        f"{ratio:.2f}x ({low:.2f}-{high:.2f})",
        f">= {LEVEL}x",
        ratio >= LEVEL,
    )


if __name__ == "__main__":
    alone(measure, __doc__)
