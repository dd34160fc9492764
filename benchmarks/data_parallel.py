"""Is data-parallel training right? The losses of 50 steps on 3 nodes and in 1 process: same batch and seed, fp32.

python -m benchmarks.data_parallel [--quick]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say

LIMIT, STEPS = 1e-5, 50
ARGUMENTS = ["--steps", str(STEPS), "--log-every", "1", "--eval-every", "0", "--checkpoint-every", "0"]


def measure(quick: bool) -> dict[str, Any]:
    """For each recipe, the largest relative difference between the two runs' global losses, over all steps."""
    rows, notes = [], []
    with nodes.scratch() as scratch:
        for recipe in ("digits",) if quick else ("digits", "text"):
            alone_losses = _losses(scratch / f"{recipe}-1", recipe, 1)
            together = _losses(scratch / f"{recipe}-3", recipe, 3)
            apart = [abs(a - b) / abs(a) for a, b in zip(alone_losses, together, strict=True)]
            worst = max(apart)
            say(f"{recipe}: {' '.join(f'{value:.0e}' for value in apart)}")
            what = f"losses of 3 nodes against 1 process, {recipe}"
            rows.append(Row(what, f"{worst:.1e} apart", "1 process", "", f"<= {LIMIT:.0e}", worst <= LIMIT))
            notes.append(
                f"{recipe}: loss {alone_losses[0]:.4f} to {alone_losses[-1]:.4f}, first step {apart[0]:.1e} apart"
            )
    return result(rows, notes)


def _losses(folder: Path, recipe: str, count: int) -> list[float]:
    with nodes.ours(folder, count, ["--recipe", recipe, *ARGUMENTS]) as run:
        run.finish(120.0)
        by_step = {line["step"]: line["loss"] for line in run.metrics()}
    assert sorted(by_step) == list(range(1, STEPS + 1)), f"metrics.jsonl has the steps {sorted(by_step)}"
    return [by_step[step] for step in sorted(by_step)]


if __name__ == "__main__":
    alone(measure, __doc__)
