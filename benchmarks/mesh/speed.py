"""Steps a second with FSDP2 on two processes: the trainer, plain torch, and Lightning Fabric, in turns.

    python -m benchmarks.mesh.speed [--quick]

Recipe `text` with the same batch, optimizer (AdamW, fused), clipping, schedule and cut for all. The contenders start
together and then train in turns (benchmarks/throughput.py). Muster also writes its metrics and, every 100 steps, a
checkpoint of each rank's part; at each step its ranks agree on the mean loss and on whether to stop.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.throughput import Contender, ready

RIVALS = {"plain torch": "plain", "Lightning Fabric": "fabric"}
OURS, LEVEL = "Muster", 0.97
STEPS, FIRST = ["--steps", "1000000", "--recipe", "text", "--log-every", "2"], 20
TURN_S = 6.0


def measure(quick: bool) -> dict[str, Any]:
    """Milliseconds a step; the ratio is of steps a second, above 1 Muster is faster."""
    starts, turns = (1, 3) if quick else (4, 6)
    rounds: list[dict[str, float]] = []
    with nodes.scratch() as scratch:
        for start in range(starts):
            with ExitStack() as stack:
                names = [OURS, *RIVALS]
                names = names[start % 3 :] + names[: start % 3]
                contenders = {name: _start(stack, nodes.run_folder(scratch, f"{start}-{name}"), name) for name in names}
                for turn in range(turns):
                    order = names[turn % 3 :] + names[: turn % 3]
                    rounds.append({name: contenders[name].turn(TURN_S) for name in order})
            say(f"start {start + 1} of {starts}: {rounds[-1]}")
    rows = [_row(rounds, name) for name in RIVALS]
    notes = [
        f"recipe text, batch 24, {len(rounds)} rounds of {starts} starts; ratios: median (middle half) of the rounds",
        "Accelerate cannot be measured: without a GPU it leaves its FSDP2 plugin out and trains with DDP",
    ]
    return result(rows, notes)


def _start(stack: ExitStack, folder: Path, name: str) -> Contender:
    if name == OURS:
        options = ["--mesh", "dp_shard=2", "--eval-every", "0", "--checkpoint-every", "100", "--timeout", "600"]
        run = stack.enter_context(nodes.ours(folder, 1, [*STEPS, *options]))
        return ready(
            run,
            lambda: [line for line in nodes.lines(folder / "metrics.jsonl") if "loss" in line],
            FIRST,
        )
    run = stack.enter_context(nodes.rival(folder, 1, "benchmarks.rivals.sharded", [RIVALS[name], *STEPS]))
    return ready(run, run.console_lines, FIRST)


def _row(rounds: list[dict[str, float]], name: str) -> Row:
    ratios = [times[name] / times[OURS] for times in rounds]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    return Row(
        f"FSDP2 on 2 ranks against {name}",
        f"{spread([times[OURS] for times in rounds])} ms/step",
        f"{spread([times[name] for times in rounds])} ms/step",
        f"{ratio:.2f}x ({low:.2f}-{high:.2f})",
        f">= {LEVEL}x",
        ratio >= LEVEL,
    )


if __name__ == "__main__":
    alone(measure, __doc__)
