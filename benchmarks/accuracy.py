"""Held-out accuracy of `make up` as it comes, on both backends, and the seconds from the command to its end.

    python -m benchmarks.accuracy [--quick]

Docker is measured where an engine answers; its image is built beforehand and not part of the time.
"""

from __future__ import annotations

import subprocess
from typing import Any

from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.make_up import Made, make_up
from benchmarks.venv import HOME
from deploy.engine.client import find_engine

LEAST, LIMIT_S = 0.98, 60.0
SEEDS = {"processes": 3, "docker": 2}


def measure(quick: bool) -> dict[str, Any]:
    """The worst of the seeds counts."""
    rows = []
    for backend in SEEDS:
        if backend == "docker" and not find_engine().answers:
            rows.append(Row("accuracy and time of make up, docker", "not measured: no engine answers"))
            continue
        if backend == "docker":
            subprocess.run(["make", "--silent", "image"], cwd=HOME, check=True, capture_output=True)
        rows += _rows(backend, [_made(backend, seed) for seed in range(1 if quick else SEEDS[backend])])
    return result(rows, ["another seed each time; median (least-most)"])


def _made(backend: str, seed: int) -> Made:
    made = make_up(backend, f"--seed {seed}")
    say(f"make up, {backend}, seed {seed}: {made.accuracy:.2%} in {made.seconds:.1f} s")
    return made


def _rows(backend: str, made: list[Made]) -> list[Row]:
    accuracies, seconds = [training.accuracy * 100 for training in made], [training.seconds for training in made]
    return [
        Row(
            f"held-out accuracy, {backend}",
            f"{spread(accuracies)} %",
            target=f">= {LEAST:.0%}",
            met=min(accuracies) >= LEAST * 100,
        ),
        Row(
            f"make up to its end, {backend}",
            f"{spread(seconds, '.1f')} s",
            target=f"<= {LIMIT_S:.0f} s",
            met=max(seconds) <= LIMIT_S,
        ),
    ]


if __name__ == "__main__":
    alone(measure, __doc__)
