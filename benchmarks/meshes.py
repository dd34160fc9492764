"""Models that the ranks have cut: losses, resharding, damage, wrong plans, memory, speed.

python -m benchmarks.meshes [--quick]                 # all of it, half an hour
python -m benchmarks.mesh.resharding [--quick]        # one part: losses, resharding, damage, unshared, plans, ...
"""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.figure import alone, say

PARTS = ("losses", "resharding", "damage", "unshared", "plans", "memory", "speed")


def measure(quick: bool) -> dict[str, Any]:
    """The rows and notes of every part."""
    whole: dict[str, Any] = {"rows": [], "notes": []}
    for part in PARTS:
        say(part)
        found = importlib.import_module(f"benchmarks.mesh.{part}").measure(quick)
        whole["rows"] += found["rows"]
        whole["notes"] += [f"{part}: {note}" for note in found["notes"]]
    return whole


if __name__ == "__main__":
    alone(measure, __doc__)
