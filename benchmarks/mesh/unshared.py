"""A run whose hosts share no disk continues, each rank on another host than before; beside `dcp.load`.

python -m benchmarks.mesh.unshared [--quick]
"""

from __future__ import annotations

from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result
from benchmarks.mesh.runs import case, losses, run

LIMIT, STEPS = 1e-5, 8


def measure(quick: bool) -> dict[str, Any]:
    """Whether the losses go on as those of a run that nobody stopped, and what DCP says."""
    options = ("--steps", STEPS)
    with nodes.scratch() as scratch:
        answer, one = scratch / "answer", scratch / "NEXT"
        reference = {"reference": str(scratch / "reference.pt")}
        run(4, [case("train", scratch / "whole", 4, "FSDP2", *options)])
        run(4, [case("save", scratch / "RANK", 4, "FSDP2", *options, stop_after=3, **reference)])
        run(
            4,
            [
                case("elsewhere", one, 4, "HSDP", *options, answer=str(answer)),
                case("train", one, 4, "HSDP", *options),
            ],
        )
        whole = losses(scratch / "whole")
        went_on = losses(scratch / "0") + losses(scratch / "1")
        apart = max(abs(a - b) / b for a, b in zip(went_on, whole, strict=True))
        error = answer.read_text()
    rows = [
        Row(
            "continued without a shared disk, ranks on other hosts and mesh",
            f"works: losses {apart:.1e} apart",
            f"dcp.load: {error[:70] or 'works'}",
            "",
            f"<= {LIMIT:.0e}",
            apart <= LIMIT,
        )
    ]
    return result(rows)


if __name__ == "__main__":
    alone(measure, __doc__)
