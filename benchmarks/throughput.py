"""Training throughput on 2 processes: the trainer as users run it, a bare DDP loop, Lightning Fabric and Accelerate.

    python -m benchmarks.throughput [--quick]

All train recipe `digits` with the same batch, optimizer (AdamW, fused), clipping and schedule, in two tables: the
recipe as it ships, whose model() lays the weights out channels-last, and with contiguous weights. All contenders call
the same model() and none changes the layout itself, so in both tables each has its defaults and the same layout.

Muster also writes its metrics and, every 100 steps, a checkpoint; at each step its ranks agree on the mean loss and on
whether to stop. The rivals are written as their documentation shows, and print a loss every ten steps.

One run differs from the next by more than the contenders do, because the cores are shared. So all four start, and then
take turns of 1.5 s, in a changing order, while the others are stopped (SIGSTOP). A turn counts its whole intervals of
ten steps. A round is one turn of each; a ratio is the median over the rounds of several starts.
"""

from __future__ import annotations

import signal
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from deploy.local.processes import labelled
from gpu_check.processes import send
from gpu_check.turns import Contender
from muster.files import read_lines

BATCH, FIRST = 96, 50
TURN_S = 1.5
RIVALS = {
    "bare DDP loop": "bare",
    "Lightning Fabric": "fabric_loop",
    "Accelerate": "accelerate_loop",
}
OURS = "Muster"
LAYOUTS = {
    "channels-last": "digits",
    "contiguous": str(Path(__file__).with_name("contiguous_digits.py")),
}
# Level: on shared cores the medians of two runs of one program differ by this much.
LEVEL = 0.95
Round = dict[str, float]


def measure(quick: bool) -> dict[str, Any]:
    """Milliseconds a step, checkpoints and metrics included; the ratio is of throughputs, above 1 Muster is faster."""
    starts, turns = (1, 3) if quick else (4, 5)
    rows, notes = [], []
    with nodes.scratch() as scratch:
        for layout, recipe in LAYOUTS.items():
            rounds: list[Round] = []
            for start in range(starts):
                rounds += _rounds(scratch, f"{layout}-{start}", recipe, start, turns)
                medians = {name: statistics.median(_times(rounds[-turns:], name)) for name in (OURS, *RIVALS)}
                texts = ", ".join(f"{name} {median:.2f}" for name, median in medians.items())
                say(f"throughput, {layout}, {start + 1}/{starts}: {texts} ms a step")
            rows += [_row(name, layout, rounds) for name in RIVALS]
            rate = BATCH / statistics.median(_times(rounds, OURS)) * 1e3
            notes.append(f"{layout} for all: Muster {rate:,.0f} samples/s; {len(rounds)} rounds of {starts} starts")
    return result(rows, [*notes, "times: median (least-most); ratios: median (middle half) of the rounds"])


def _times(rounds: list[Round], name: str) -> list[float]:
    return [times[name] for times in rounds]


def _rounds(scratch: Path, name: str, recipe: str, start: int, turns: int) -> Iterator[Round]:
    """Start all contenders, and let them train in turns."""
    with ExitStack() as stack:
        contenders = {
            contender: _start(stack, nodes.run_folder(scratch, f"{name}-{contender}"), contender, recipe)
            for contender in (OURS, *RIVALS)
        }
        names = list(contenders)
        for turn in range(turns):
            first = (start + turn) % len(names)
            yield {name: _turn(contenders[name]) for name in names[first:] + names[:first]}


def _turn(contender: Contender) -> float:
    if (milliseconds := contender.turn()) is None:
        raise RuntimeError(f"no ten steps in a turn\n{contender.run.last_words()}")
    return milliseconds


def _start(stack: ExitStack, folder: Path, name: str, recipe: str) -> Contender:
    """Start one contender, wait until it has done FIRST steps, and stop it there."""
    arguments = ["--steps", "1000000", "--recipe", recipe]
    if name == OURS:
        # A rank that stands still while the others start is not lost.
        options = ["--eval-every", "0", "--checkpoint-every", "100", "--timeout", "600"]
        run = stack.enter_context(nodes.ours(folder, 1, [*arguments, *options]))

        def lines() -> list[dict[str, Any]]:
            return [line for line in read_lines(folder / "metrics.jsonl") if "loss" in line]
    else:
        run = stack.enter_context(nodes.rival(folder, 1, f"benchmarks.rivals.{RIVALS[name]}", arguments))
        lines = run.console_lines
    run.wait(lambda: (done := lines()) and done[-1]["step"] >= FIRST, 120.0, poll_s=0.1)
    # Only ranks are stopped: torchrun must send its keep-alives, or the nodes would take each other for dead.
    ranks = [process.pid for process in labelled(folder) if not process.children()]
    send(ranks, signal.SIGSTOP)
    return Contender(run, lines, ranks, TURN_S)


def _row(name: str, layout: str, rounds: list[Round]) -> Row:
    ratios = [times[name] / times[OURS] for times in rounds]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    return Row(
        f"throughput against {name}, {layout} for both",
        f"{spread(_times(rounds, OURS))} ms/step",
        f"{spread(_times(rounds, name))} ms/step",
        f"{ratio:.2f}x ({low:.2f}-{high:.2f})",
        f">= {LEVEL}x",
        ratio >= LEVEL,
    )


if __name__ == "__main__":
    alone(measure, __doc__)
