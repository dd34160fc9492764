"""From `make up` to the end of the first step, compared with bare torchrun starting the same processes.

    python -m benchmarks.startup [--quick]

The rival is three torchruns with one rank each, started directly from here, with the bare DDP loop of
benchmarks/rivals. Muster's side is the whole command: make, fab, the checks, the run folder, three agents, three
torchruns, three ranks.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.venv import HOME, VENV
from muster.files import object_of

LIMIT = 1.25
LATEST = HOME / "runs" / "latest"


def measure(quick: bool) -> dict[str, Any]:
    """Seconds; the two take turns, and the order changes."""
    repetitions = 2 if quick else 5
    ours: list[float] = []
    bare: list[float] = []
    with nodes.scratch() as scratch:
        for repetition in range(repetitions):
            for turn in (repetition, repetition + 1):
                if turn % 2:
                    ours.append(_make_up())
                else:
                    bare.append(_bare(scratch / str(repetition)))
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


def _make_up() -> float:
    """Run `make up` as a user types it, and remove its run folder. Raises RuntimeError with its output if it failed."""
    command = ["make", "up", f"VENV={VENV.name}", "BACKEND=processes", "ARGS=--steps 1 --eval-every 0", "JSON=1"]
    latest = LATEST.readlink() if LATEST.is_symlink() else None
    began = time.time()
    process = subprocess.Popen(
        command, cwd=HOME, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    output = ""
    try:
        output, _ = process.communicate()
    finally:
        if process.poll() is None:  # this process was interrupted: `make up` must end gracefully, too
            os.killpg(process.pid, signal.SIGTERM)
            output, _ = process.communicate()
        events = [object_of(line) for line in output.splitlines()]
        for end in events:
            if end.get("kind") == "result":
                _forget(HOME / end["folder"], latest)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}\n{output[-3000:]}")
    return min(float(event["t"]) for event in events if event.get("kind") == "step") - began


def _forget(folder: Path, latest: Path | None) -> None:
    """Remove the run's folder, and restore the target of the link `latest`."""
    shutil.rmtree(folder, ignore_errors=True)
    if LATEST.is_symlink() and LATEST.readlink().name == folder.name:
        LATEST.unlink()
        if latest is not None:
            LATEST.symlink_to(latest)


def _bare(folder: Path) -> float:
    began = time.time()
    with nodes.rival(folder, 3, "benchmarks.rivals.bare", ["--steps", "1"]) as run:
        return float(run.wait(run.console_lines, "the first step", 60.0)[0]["t"]) - began


if __name__ == "__main__":
    alone(measure, __doc__)
