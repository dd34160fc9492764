"""Steps a second with FSDP2 on two processes: the trainer, plain torch, and Lightning Fabric, in turns.

    python -m benchmarks.mesh.speed [--quick]

Recipe `text` with the same batch, optimizer (AdamW, fused), clipping, schedule and cut for all. All three train inside
the same two ranks, and take turns after every eighth step, so that what else the machine does falls on all. Muster also
writes its metrics and, every 100 steps, a checkpoint of each rank's part (its thread writes while the rivals train);
at each step its ranks agree on the mean loss and on whether to stop.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, spread
from benchmarks.mesh.runs import TEXT, case, run

OURS, BLOCK = "Muster", 8
REACH = {"plain torch": 0.97, "Lightning Fabric": 1.0}


def measure(quick: bool) -> dict[str, Any]:
    """Milliseconds a step; the ratio is of steps a second, above 1 Muster is faster."""
    rounds = 12 if quick else 60
    with nodes.scratch() as scratch:
        options = ("--steps", (rounds + 2) * BLOCK, "--eval-every", 0, "--checkpoint-every", 100, "--timeout", 600)
        run(2, [case("speed", scratch / "run", 2, "FSDP2", *options, recipes=TEXT)], 1800.0)
        taken: list[dict[str, float]] = json.loads((scratch / "run" / "times.json").read_text())
    rows = [_row(taken, name) for name in REACH]
    notes = [
        f"recipe text, batch 24, {len(taken)} rounds of {BLOCK} steps each; ratios: median (middle half) of the rounds",
        "Accelerate cannot be measured: without a GPU it leaves its FSDP2 plugin out and trains with DDP",
    ]
    return result(rows, notes)


class Turns:
    """Called before each step of the trainer, on every rank: after every eighth one the rivals have their turn."""

    def __init__(self, rivals: dict[str, Iterator[None]]) -> None:
        self.rivals, self.calls, self.began, self.rounds = rivals, 0, 0.0, list[dict[str, float]]()

    def __call__(self) -> bool:
        """False: nobody asks for a stop."""
        if self.calls % BLOCK == 0:
            taken = {OURS: self._since(self.began)}
            names = list(self.rivals)
            for name in names if len(self.rounds) % 2 else names[::-1]:
                began = self._now()
                for _ in range(BLOCK):
                    next(self.rivals[name])
                taken[name] = self._since(began)
            self.rounds.append(taken)
            self.began = self._now()
        self.calls += 1
        return False

    def _now(self) -> float:
        dist.barrier()
        return time.perf_counter()

    def _since(self, began: float) -> float:
        return (self._now() - began) / BLOCK * 1e3


def of_rank(training: Any, folder: Path) -> None:
    """Train on this rank, with the rivals in between; rank 0 writes the times."""
    from benchmarks.rivals import sharded

    steps = training.config.steps
    turns = Turns({"plain torch": sharded.plain(steps), "Lightning Fabric": sharded.fabric(steps)})
    training.stop_asked = turns
    training.run()
    if training.ranks.first:  # of the first rounds one has no time of ours, and one is to warm up
        (folder / "times.json").write_text(json.dumps(turns.rounds[2:]))


def _row(rounds: list[dict[str, float]], name: str) -> Row:
    ratios = [times[name] / times[OURS] for times in rounds]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    return Row(
        f"FSDP2 on 2 ranks against {name}",
        f"{spread([times[OURS] for times in rounds])} ms/step",
        f"{spread([times[name] for times in rounds])} ms/step",
        f"{ratio:.3f}x ({low:.2f}-{high:.2f})",
        f">= {REACH[name]}x",
        ratio >= REACH[name],
    )


if __name__ == "__main__":
    alone(measure, __doc__)
