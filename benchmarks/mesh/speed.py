"""Steps a second with FSDP2 on two processes: the trainer, plain torch, Lightning Fabric and Accelerate.

    python -m benchmarks.mesh.speed [--quick]

Recipe `text` with the same batch, optimizer (AdamW, fused), clipping, schedule and cut for all. All train inside
the same two ranks, and take turns after every eighth step, so that what else the machine does falls on all. Muster also
writes its metrics and, every 100 steps, a checkpoint of each rank's part (its thread writes while the rivals train);
at each step its ranks agree on the mean loss and on whether to stop. Plain torch takes part twice: what the two differ
by is chance. The processors' time of both ranks is less moved by what else the machine does.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, spread
from benchmarks.mesh.runs import TEXT, case, run

OURS, BLOCK, AGAIN = "Muster", 8, "plain torch again"
REACH = {"plain torch": 0.97, "Lightning Fabric": 1.0, "Accelerate": 1.0}


def measure(quick: bool) -> dict[str, Any]:
    """Milliseconds a step; the ratio is of steps a second, above 1 Muster is faster."""
    rounds = 12 if quick else 60
    with nodes.scratch() as scratch:
        options = ("--steps", (rounds + 2) * BLOCK, "--eval-every", 0, "--checkpoint-every", 100, "--timeout", 600)
        run(2, [case("speed", scratch / "run", 2, "FSDP2", *options, recipes=TEXT)], 1800.0)
        taken: list[dict[str, dict[str, float]]] = json.loads((scratch / "run" / "times.json").read_text())
    rows = [_row(taken, name) for name in REACH]
    chance = [_ratio([times[kind][AGAIN] / times[kind]["plain torch"] for times in taken]) for kind in ("wall", "cpu")]
    notes = [
        f"recipe text, batch 24, {len(taken)} rounds of {BLOCK} steps each; ratios: median (middle half) of the rounds",
        f"plain torch against itself: {chance[0]}; by processors' time {chance[1]}",
        "without a GPU Accelerate leaves its FSDP2 plugin out: its state is set to what it has with one",
    ]
    return result(rows, notes)


class Turns:
    """Called before each step of the trainer, on every rank: after every eighth one the rivals have their turn."""

    def __init__(self, rivals: dict[str, Iterator[None]]) -> None:
        self.rivals, self.calls, self.draw = rivals, 0, random.Random(0)
        self.began, self.rounds = (0.0, 0.0), list[dict[str, dict[str, float]]]()

    def __call__(self) -> bool:
        """False: nobody asks for a stop."""
        if self.calls % BLOCK == 0:
            taken: dict[str, dict[str, float]] = {"wall": {}, "cpu": {}}
            self._note(taken, OURS, self.began)
            for name in self.draw.sample(list(self.rivals), len(self.rivals)):
                began = self._now()
                for _ in range(BLOCK):
                    next(self.rivals[name])
                self._note(taken, name, began)
            self.rounds.append(taken)
            self.began = self._now()
        self.calls += 1
        return False

    def _now(self) -> tuple[float, float]:
        dist.barrier()
        return time.perf_counter(), time.process_time()

    def _note(self, taken: dict[str, dict[str, float]], name: str, began: tuple[float, float]) -> None:
        spent = torch.tensor(time.process_time() - began[1])
        taken["wall"][name] = (self._now()[0] - began[0]) / BLOCK * 1e3
        dist.all_reduce(spent)
        taken["cpu"][name] = spent.item() / BLOCK * 1e3


def of_rank(training: Any, folder: Path) -> None:
    """Train on this rank, with the rivals in between; rank 0 writes the times."""
    from benchmarks.rivals import sharded

    steps = training.config.steps
    rivals = {name: sharded.plain(steps) for name in ("plain torch", AGAIN)}
    turns = Turns({**rivals, "Lightning Fabric": sharded.fabric(steps), "Accelerate": sharded.accelerate(steps)})
    training.stop_asked = turns
    training.run()
    if training.ranks.first:  # of the first rounds one has no time of ours, and one is to warm up
        (folder / "times.json").write_text(json.dumps(turns.rounds[2:]))


def _row(rounds: list[dict[str, dict[str, float]]], name: str) -> Row:
    ratios = {kind: [times[kind][name] / times[kind][OURS] for times in rounds] for kind in ("wall", "cpu")}
    ratio = statistics.median(ratios["wall"])
    return Row(
        f"FSDP2 on 2 ranks against {name}",
        f"{spread([times['wall'][OURS] for times in rounds])} ms/step",
        f"{spread([times['wall'][name] for times in rounds])} ms/step",
        f"{_ratio(ratios['wall'])}; by processors' time {_ratio(ratios['cpu'])}",
        f">= {REACH[name]}x",
        ratio >= REACH[name],
    )


def _ratio(ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f}x ({low:.2f}-{high:.2f})"


if __name__ == "__main__":
    alone(measure, __doc__)
