"""How `fab preflight` grows with the hosts: the whole command, 64 hosts against 8, all pairs, one SSH session each.

    python -m benchmarks.preflight_growth [--quick]

Hosts are network namespaces of the laboratory with an sshd each. They have no engine, which preflight says, so that it
looks from the hosts themselves. All of them share this machine's cores. Needs root.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import nodes, sshd
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.venv import HOME
from lab import network

FEW, MANY, MOST_RATIO = 8, 64, 6.0
PORT, NO_ENGINE = 2222, "docker-down"


def measure(quick: bool) -> dict[str, Any]:
    """Seconds of the command, its start included."""
    if lacking := network.missing():
        raise RuntimeError(lacking)
    times = {count: _times(count, 2 if quick else 4) for count in (FEW, MANY)}
    ratio = statistics.median(times[MANY]) / statistics.median(times[FEW])
    row = Row(
        f"fab preflight, {MANY} hosts against {FEW}",
        f"{spread(times[MANY])} s",
        f"{FEW} hosts {spread(times[FEW])} s",
        f"{ratio:.1f}x",
        f"<= {MOST_RATIO:g}x",
        ratio <= MOST_RATIO,
    )
    return result([row], [f"{MANY * (MANY - 1)} pairs against {FEW * (FEW - 1)}, on {os.cpu_count()} cores for all"])


def _times(count: int, repetitions: int) -> list[float]:
    times = []
    with nodes.scratch() as scratch, network.Lab(count) as lab:
        places = [
            sshd.Place(
                host.name,
                host.address,
                PORT,
                lambda argv, host=host: host.start(*argv),
                ("DOCKER_HOST=unix:///nowhere.sock",),
            )
            for host in lab.hosts
        ]
        with sshd.servers(scratch, places) as config:
            for _ in range(repetitions + 1):  # the first warms the caches
                times.append(_preflight([host.name for host in lab.hosts], lab.switch, config))
                say(f"{count} hosts: {times[-1]:.2f} s")
    return times[1:]


def _preflight(names: list[str], space: str, config: Path) -> float:
    """Seconds. Raises RuntimeError where it finds anything but that there is no engine."""
    fab = str(Path(sys.executable).with_name("fab"))
    command = ["ip", "netns", "exec", space, fab, "preflight", "--hosts", ",".join(names), "--quick", "--json"]
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=HOME, env={**os.environ, "MUSTER_SSH_CONFIG": str(config)}, capture_output=True, text=True
    )
    seconds = time.monotonic() - began
    try:
        causes = {finding["cause"] for finding in json.loads(done.stdout)["findings"] if finding["level"] != "warning"}
    except ValueError:
        raise RuntimeError(f"{done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}") from None
    if causes != {NO_ENGINE}:
        raise RuntimeError(f"on hosts that are well: {causes}: {done.stdout[:1500]}")
    return seconds


if __name__ == "__main__":
    alone(measure, __doc__)
