"""Every mesh of four ranks against one process: the losses of 50 steps of recipe `text`, fp32.

python -m benchmarks.mesh.losses [--quick]
"""

from __future__ import annotations

from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result
from benchmarks.mesh.runs import MESHES, TEXT, case, losses, run

LIMIT = 1e-5


def measure(quick: bool) -> dict[str, Any]:
    """For each mesh the largest relative difference of the global loss, over all steps."""
    steps = 10 if quick else 50
    options = ("--steps", steps, "--log-every", 1, "--eval-every", 0, "--checkpoint-every", 0)
    with nodes.scratch() as scratch:
        run(1, [case("train", scratch / "one", 1, "one process", *options, recipes=TEXT)])
        run(4, [case("train", scratch / name, 4, name, *options, recipes=TEXT) for name in MESHES[4]])
        one = losses(scratch / "one")
        if len(one) != steps:
            raise RuntimeError(f"one process has logged {len(one)} steps of {steps}")
        worst = {
            name: max(abs(a - b) / abs(b) for a, b in zip(losses(scratch / name), one, strict=True))
            for name in MESHES[4]
        }
    rows = [
        Row(
            f"losses of {name} on 4 ranks, {steps} steps",
            f"{apart:.1e} apart",
            "1 process",
            "",
            f"<= {LIMIT:.0e}",
            apart <= LIMIT,
        )
        for name, apart in worst.items()
    ]
    return result(rows, [f"recipe text, fp32: loss {one[0]:.4f} to {one[-1]:.4f}"])


if __name__ == "__main__":
    alone(measure, __doc__)
