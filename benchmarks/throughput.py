"""Training throughput on 2 processes: the trainer as users run it, a bare DDP loop, Lightning Fabric and Accelerate.

    python -m benchmarks.throughput [--quick]

All train recipe `digits` with the same batch, optimizer (AdamW, fused), clipping and schedule. Ours writes its metrics
and its checkpoints meanwhile, the others print a loss every ten steps. Each repetition starts every contender anew, in
a changing order; what counts is the time from step 50 to the last, everything in between included.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread

BATCH, FIRST = 96, 50
RIVALS = {
    "bare DDP loop": "bare",
    "Lightning Fabric": "fabric_loop",
    "Accelerate": "accelerate_loop",
}


def measure(quick: bool) -> dict[str, Any]:
    """Milliseconds a step, checkpoints and metrics included; the ratio is of throughputs, more is better for us."""
    repetitions, steps = (1, 250) if quick else (9, 450)
    contenders = {"Muster": partial(_ours, steps), **{name: partial(_rival, steps, RIVALS[name]) for name in RIVALS}}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    with nodes.scratch() as scratch:
        for repetition in range(repetitions):
            order = list(contenders)
            order = order[repetition % len(order) :] + order[: repetition % len(order)]
            for name in order:
                folder = nodes.run_folder(scratch, f"{repetition}-{len(times[name])}-{order.index(name)}")
                times[name].append(contenders[name](folder))
                say(f"throughput {repetition + 1}/{repetitions}: {name} {times[name][-1]:.2f} ms a step")
    ours = times.pop("Muster")
    rows = [_row(name, ours, theirs) for name, theirs in times.items()]
    rate = BATCH / statistics.median(ours) * 1e3
    return result(
        rows, [f"Muster: {rate:,.0f} samples/s; {steps} steps, repetitions: {repetitions}; median (least-most)"]
    )


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


def _ours(steps: int, folder: Path) -> float:
    arguments = ["--steps", str(steps), "--eval-every", "0", "--checkpoint-every", "100"]
    with nodes.ours(folder, 1, arguments) as run:
        return _ms_a_step(
            run, lambda: [line for line in nodes.lines(folder / "metrics.jsonl") if "loss" in line], steps
        )


def _rival(steps: int, module: str, folder: Path) -> float:
    with nodes.rival(folder, 1, f"benchmarks.rivals.{module}", ["--steps", str(steps)]) as run:
        return _ms_a_step(run, run.said, steps)


def _ms_a_step(run: nodes.Run, read: Callable[[], list[dict[str, Any]]], steps: int) -> float:
    """From the lines of steps FIRST and the last. How a run ends is not waited for: gloo may crash on the way out."""
    logged = run.wait(lambda: (found := read()) and found[-1]["step"] == steps and found, 120.0, poll_s=0.2)
    first = next(line for line in logged if line["step"] >= FIRST)
    return float((logged[-1]["t"] - first["t"]) / (steps - first["step"]) * 1e3)


if __name__ == "__main__":
    alone(measure, __doc__)
