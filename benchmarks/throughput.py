"""Training throughput on 2 processes: the trainer as users run it, a bare DDP loop, Lightning Fabric and Accelerate.

    python -m benchmarks.throughput [--quick]

All train recipe `digits` with the same batch, optimizer (AdamW, fused), clipping and schedule. Ours writes its metrics
and, every 100 steps, a checkpoint meanwhile, and lays convolutions out channels-last by itself (docs/decisions/0012);
the others are written as their own documentation shows, and print a loss every ten steps.

One run differs from the next by more than contenders do: cores are shared with strangers. So all four are started, and
then take turns of a second or two, in a changing order, with the others stopped (SIGSTOP). A turn is as long as its
whole intervals of ten steps; what is compared are the medians of all turns, those of several starts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from deploy.local.processes import labelled

BATCH, FIRST = 96, 50
TURN_S = 1.5
RIVALS = {
    "bare DDP loop": "bare",
    "Lightning Fabric": "fabric_loop",
    "Accelerate": "accelerate_loop",
}
OURS = "Muster"
_FOREVER = ["--steps", "1000000"]


@dataclass
class Contender:
    """A run that goes on until its time is over; `lines` tells the step and time of each ten steps."""

    run: nodes.Run
    lines: Callable[[], list[dict[str, Any]]]
    processes: list[psutil.Process]

    def turn(self) -> float:
        """Let it train for TURN_S seconds; milliseconds a step."""
        known = len(self.lines())
        for process in self.processes:
            process.resume()
        time.sleep(TURN_S)
        for process in self.processes:
            process.suspend()
        # The first line behind the pause ends an interval that began before it.
        inside = self.lines()[known:]
        return float((inside[-1]["t"] - inside[0]["t"]) / (inside[-1]["step"] - inside[0]["step"]) * 1e3)


def measure(quick: bool) -> dict[str, Any]:
    """Milliseconds a step, checkpoints and metrics included; the ratio is of throughputs, more is better for us."""
    starts, turns = (1, 3) if quick else (5, 8)
    times: dict[str, list[float]] = {name: [] for name in (OURS, *RIVALS)}
    with nodes.scratch() as scratch:
        for start in range(starts):
            for name, milliseconds in _turns(scratch, start, turns):
                times[name].append(milliseconds)
            said = ", ".join(f"{name} {statistics.median(times[name][-turns:]):.2f}" for name in times)
            say(f"throughput {start + 1}/{starts}: {said} ms a step")
    ours = times.pop(OURS)
    rate = BATCH / statistics.median(ours) * 1e3
    rows = [_row(name, ours, theirs) for name, theirs in times.items()]
    return result(rows, [f"Muster: {rate:,.0f} samples/s; {len(ours)} turns of {starts} starts; median (least-most)"])


def _turns(scratch: Path, start: int, turns: int) -> Iterator[tuple[str, float]]:
    """Start all contenders, and let them train in turns."""
    with ExitStack() as stack:
        contenders = {
            name: _start(stack, nodes.run_folder(scratch, f"{start}-{name}"), name) for name in (OURS, *RIVALS)
        }
        names = list(contenders)
        for turn in range(turns):
            first = (start + turn) % len(names)
            for name in names[first:] + names[:first]:
                yield name, contenders[name].turn()


def _start(stack: ExitStack, folder: Path, name: str) -> Contender:
    """Start one, let it come to step FIRST, and stop it there for now."""
    if name == OURS:
        arguments = [*_FOREVER, "--eval-every", "0", "--checkpoint-every", "100"]
        run = stack.enter_context(nodes.ours(folder, 1, arguments))

        def lines() -> list[dict[str, Any]]:
            return [line for line in nodes.lines(folder / "metrics.jsonl") if "loss" in line]
    else:
        run = stack.enter_context(nodes.rival(folder, 1, f"benchmarks.rivals.{RIVALS[name]}", _FOREVER))
        lines = run.said
    run.wait(lambda: (found := lines()) and found[-1]["step"] >= FIRST, 120.0, poll_s=0.1)
    processes = labelled(folder)
    for process in processes:
        process.suspend()
    return Contender(run, lines, processes)


def _row(name: str, ours: list[float], theirs: list[float]) -> Row:
    ratio = statistics.median(theirs) / statistics.median(ours)
    return Row(
        f"throughput against {name}",
        f"{spread(ours)} ms/step",
        f"{spread(theirs)} ms/step",
        f"{ratio:.2f}x",
        ">= 1.0x" if name.startswith("bare") else "> 1.0x",
        ratio > 1.0 or (ratio == 1.0 and name.startswith("bare")),
    )


if __name__ == "__main__":
    alone(measure, __doc__)
