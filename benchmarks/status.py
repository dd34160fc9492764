"""`fab status` on 16 SSH hosts, beside one parallel round trip of plain Fabric to the same hosts.

    python -m benchmarks.status [--quick]

The hosts are 16 OpenSSH servers on this machine's loopback, each with a key, a port and a home of its own; a docker
that answers there is this machine's. All are whole processes, the start of Python included, and take turns.
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import nodes, sshd
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.venv import HOME
from deploy.host import commands

HOSTS, MOST_RATIO = 16, 2.0
_FABRIC = """
import sys
from fabric import Config, ThreadingGroup
config = Config(runtime_ssh_path=sys.argv[1])
ThreadingGroup(*sys.argv[3:], config=config).run(sys.argv[2], hide=True)
"""


def measure(quick: bool) -> dict[str, Any]:
    """Seconds of the whole command; the rivals take turns with ours."""
    repetitions = 3 if quick else 9
    names = [f"host-{number:02d}" for number in range(HOSTS)]
    ours: list[float] = []
    nothing: list[float] = []
    same: list[float] = []
    with nodes.scratch() as scratch, sshd.servers(scratch, [sshd.on_loopback(name) for name in names]) as config:
        # Both find their modules compiled, as everybody does from the second time on.
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {**variables, "MUSTER_SSH_CONFIG": str(config), "PYTHONPYCACHEPREFIX": str(scratch / "compiled")}
        status = [Path(sys.executable).with_name("fab"), "status", "--hosts", ",".join(names)]
        plain = [sys.executable, "-c", _FABRIC, config]
        question = shlex.join(commands.status())
        for repetition in range(repetitions + 1):
            times = [seconds(command, environment) for command in (status, [*plain, "true", *names])]
            times.append(seconds([*plain, question, *names], environment))
            if repetition:  # the first warms the caches of all
                for values, value in zip((ours, nothing, same), times, strict=True):
                    values.append(value)
                say(f"{repetition}/{repetitions}: {times[0]:.2f} s, Fabric {times[1]:.2f} s, same {times[2]:.2f} s")
    return _result(ours, nothing, same)


def seconds(command: Sequence[Any], environment: dict[str, str]) -> float:
    """How long a command takes. Raises when it fails."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.returncode}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return time.monotonic() - began


def _result(ours: list[float], nothing: list[float], same: list[float]) -> dict[str, Any]:
    ratio = statistics.median(ours) / statistics.median(nothing)
    against_same = statistics.median(ours) / statistics.median(same)
    row = Row(
        f"fab status on {HOSTS} hosts",
        f"{spread(ours)} s",
        f"Fabric's ThreadingGroup running `true` {spread(nothing)} s",
        f"{ratio:.2f}x",
        f"<= {MOST_RATIO}x",
        ratio <= MOST_RATIO,
    )
    asked = Row("the same", f"{spread(ours)} s", f"asked the same by Fabric {spread(same)} s", f"{against_same:.2f}x")
    note = (
        f"{len(ours)} repetitions; all {HOSTS} sshd, their shells and docker's client run on this machine's cores too"
    )
    return result([row, asked], [note])


if __name__ == "__main__":
    alone(measure, __doc__)
