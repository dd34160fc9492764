"""From `make up` to the end of the first step, beside bare torchrun starting the same processes.

    python -m benchmarks.startup [--quick]

The rival is three torchruns with one rank each, run straight from here, and the bare DDP loop of benchmarks/rivals.
Ours is the whole command: make, fab, the checks, the run folder, three agents, three torchruns, three ranks.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.make_up import make_up

LIMIT = 1.25


def measure(quick: bool) -> dict[str, Any]:
    """Seconds; the two take turns, and who begins changes."""
    repetitions = 2 if quick else 5
    ours: list[float] = []
    bare: list[float] = []
    with nodes.scratch() as scratch:
        for repetition in range(repetitions):
            for turn in (repetition, repetition + 1):
                if turn % 2:
                    ours.append(make_up("processes", "--steps 1 --eval-every 0").first_step_s)
                else:
                    bare.append(_bare(nodes.run_folder(scratch, str(repetition))))
            say(f"startup {repetition + 1}/{repetitions}: {ours[-1]:.2f} s, torchrun {bare[-1]:.2f} s")
    ratio = statistics.median(ours) / statistics.median(bare)
    row = Row(
        "make up to the first step, 3 nodes",
        f"{spread(ours)} s",
        f"bare torchrun {spread(bare)} s",
        f"{ratio:.2f}x",
        f"<= {LIMIT}x",
        ratio <= LIMIT,
    )
    return result([row], [f"{repetitions} repetitions, median (least-most)"])


def _bare(folder: Path) -> float:
    with nodes.rival(folder, 2, "benchmarks.rivals.bare", ["--steps", "1"]) as run:
        return float(run.wait(run.console_lines)[0]["t"]) - run.began


if __name__ == "__main__":
    alone(measure, __doc__)
