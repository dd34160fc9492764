"""What the container's health check costs: the time to import it, beside importing torch.

python -m benchmarks.health [--quick]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.figure import Row, alone, result
from benchmarks.venv import HOME

LIMIT_S = 0.1


def measure(quick: bool) -> dict[str, Any]:
    """Medians of whole processes, less a process that imports nothing; taken in turn."""
    times: dict[str, list[float]] = {"pass": [], "import trainer.node.health": [], "import torch": []}
    for _ in range(3 if quick else 7):
        for statement, taken in times.items():
            taken.append(_seconds(statement))
    bare, ours, torch = (statistics.median(taken) for taken in times.values())
    cost = ours - bare
    row = Row(
        "import of the health check",
        f"{cost * 1e3:.0f} ms",
        f"import torch {torch - bare:.2f} s",
        f"{cost / (torch - bare):.3f}x",
        f"< {LIMIT_S * 1e3:.0f} ms",
        cost < LIMIT_S,
    )
    return result([row], [f"bare Python, subtracted from both: {bare * 1e3:.0f} ms"])


def _seconds(statement: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], cwd=HOME, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    alone(measure, __doc__)
