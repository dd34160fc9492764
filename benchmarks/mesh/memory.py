"""Bytes of parameters and optimizer that a rank has of 100 million weights: FSDP2 against DDP, on two ranks.

python -m benchmarks.mesh.memory [--quick]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result
from benchmarks.mesh.runs import case, run

RECIPE = str(Path(__file__).with_name("wide_recipe.py"))
REACH = 0.55


def measure(quick: bool) -> dict[str, Any]:
    """The larger rank's bytes after two steps, of each of the two."""
    with nodes.scratch() as scratch:
        held = {}
        for name in ("DDP", "FSDP2"):
            run(2, [case("weigh", scratch / name, 2, name, recipes=(RECIPE, RECIPE))])
            held[name] = max(int((scratch / name / f"bytes-{rank}").read_text()) for rank in (0, 1))
    ratio = held["FSDP2"] / held["DDP"]
    row = Row(
        "parameters and AdamW state a rank has of 100 M weights, FSDP2 on 2 ranks",
        f"{held['FSDP2'] / 1e6:,.0f} MB",
        f"DDP {held['DDP'] / 1e6:,.0f} MB",
        f"{ratio:.2f}x",
        f"<= {REACH}x",
        ratio <= REACH,
    )
    return result([row], ["the bytes of the tensors' memory, not of the process"])


if __name__ == "__main__":
    alone(measure, __doc__)
