"""What it costs to pass on a script that prints 100 MB a second: the agent's CPU and memory, and whether all is kept.

    python -m benchmarks.print_flood [--quick]

One node with one rank, through the real agent. CPU is the share of a core over the time in which the script prints.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figure import Row, alone, result
from benchmarks.venv import HOME

RATE_MB, LIMIT_MB, MOST_CPU = 100, 64, 0.20
_SCRIPT = """
import sys, time
line = "x" * 99 + "\\n"
piece = line * 10_000
begin = time.time()
for turn in range({turns}):
    sys.stdout.write(piece)
    sys.stdout.flush()
    time.sleep(max(0.0, begin + (turn + 1) / 100 - time.time()))
print("seconds", time.time() - begin)
"""


def measure(quick: bool) -> dict[str, Any]:
    """One flood of 10 s (`quick`: 3 s)."""
    seconds = 3 if quick else 10
    with tempfile.TemporaryDirectory() as folder:
        cpu, peak_mb, wrote, took = _flood(Path(folder), seconds)
    whole = wrote >= seconds * 100_000_000
    rows = [
        Row(
            "CPU of the agent", f"{100 * cpu:.0f} % of a core", target=f"<= {100 * MOST_CPU:.0f} %", met=cpu <= MOST_CPU
        ),
        Row("memory of the agent", f"{peak_mb:.0f} MB", target=f"<= {LIMIT_MB} MB", met=peak_mb <= LIMIT_MB),
        Row("of what was printed in the log", f"{wrote / 1e6:.0f} MB", target="all", met=whole),
    ]
    return result(rows, [f"{seconds * RATE_MB} MB in {took:.1f} s: {seconds * RATE_MB / took:.0f} MB/s"])


def _flood(folder: Path, seconds: int) -> tuple[float, float, int, float]:
    (folder / "train.py").write_text(_SCRIPT.format(turns=seconds * 100))
    environment = {**os.environ, "MUSTER_RUN_DIR": str(folder / "run"), "MUSTER_NODE": "a", "PYTHONPATH": str(HOME)}
    environment |= {"PET_NPROC_PER_NODE": "1", "PET_MASTER_PORT": "0"}
    command = [sys.executable, "-P", "-m", "muster.trainer.node", "agent", "--script", "train.py"]
    log = folder / "run" / "logs" / "rank-0.log"
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as agent:
        process, peak, first, last = psutil.Process(agent.pid), 0.0, (0.0, 0.0), (0.0, 0.0)
        while agent.poll() is None:
            time.sleep(0.05)
            size = log.stat().st_size if log.exists() else 0
            try:
                used, peak = sum(process.cpu_times()[:2]), max(peak, process.memory_info().rss / 1e6)
            except psutil.Error:
                break
            now = (time.monotonic(), used)
            first = first if first[0] else now if size else first
            last = now if size < seconds * 100_000_000 else last
    text = log.read_bytes()
    took = float(text.rpartition(b"seconds ")[2].split()[0])
    return (last[1] - first[1]) / max(0.1, last[0] - first[0]), peak, len(text), took


if __name__ == "__main__":
    alone(measure, __doc__)
