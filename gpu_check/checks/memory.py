"""The peak memory of the trainer, compared with a bare DDP loop with the same recipe."""

from __future__ import annotations

from collections.abc import Iterator

from ..bench import Bench
from ..finding import Finding, judge
from ..nodes import RECIPES

TITLE, LIMIT_S = "memory at its peak", 70
STEPS = 30
# Allowed above bare torch, as a factor and in MB: for metrics, checkpoints and the step timer.
MOST_RATIO, MOST_MORE_MB = 1.1, 100.0
_END_S = 60.0


def run(bench: Bench) -> Iterator[Finding]:
    """Run both together. On a GPU, torch counts each process's own memory; on a CPU, the kernel does."""
    recipe = "wide" if bench.gpus else "inspected"
    theirs = ["--recipe", str(RECIPES / f"{recipe}.py"), "--steps", str(STEPS)]
    with (
        bench.node("trainer", [*theirs, "--eval-every", "0"]) as trainer,
        bench.node("bare", theirs, module="benchmarks.rivals.bare") as bare,
    ):
        trainer.finish(_END_S)
        bare.finish(_END_S)
        mine, other = (run.records_of_ranks()[0]["peak_mb"] for run in (trainer, bare))
    good = mine <= other * MOST_RATIO + MOST_MORE_MB
    measured = f"{mine:.0f} MB, bare torch {other:.0f} MB"
    expected = f"<= {MOST_RATIO}x + {MOST_MORE_MB:.0f} MB"
    yield judge("peak of the trainer", good, measured, expected, trainer_mb=mine, bare_mb=other)
