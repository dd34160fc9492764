"""A rack for one measurement: hosts with sshd and a Docker engine, removed at the end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.job.cluster import from_flag
from deploy.job.inventory import Host
from lab.rack import Rack, make


@contextmanager
def rack(nodes: int, store: str) -> Iterator[Rack]:
    """Run `make rack` under a separate name; inside the block, MUSTER_SSH_CONFIG points to this rack."""
    made, before = Rack("bench", nodes), os.environ.get("MUSTER_SSH_CONFIG")
    _make("rack", RACK=made.name, NODES=nodes, STORE=store)
    os.environ["MUSTER_SSH_CONFIG"] = str(made.ssh_config)
    try:
        yield made
    finally:
        os.environ.pop("MUSTER_SSH_CONFIG") if before is None else os.environ.update(MUSTER_SSH_CONFIG=before)
        _make("rack-down", RACK=made.name)


def _make(target: str, **options: object) -> None:
    if (done := make(target, **options)).returncode:
        raise RuntimeError(f"make {target}: {done.stderr}")


def inventory(of: Rack) -> tuple[Host, ...]:
    """The rack's hosts for `deploy.door.session.open_all`."""
    return from_flag(",".join(of.hosts)).hosts


def counters(of: Rack) -> list[Path]:
    """For each host, the file that counts the CPU time of the host and of everything that runs in it."""
    line = ["docker", "inspect", "--format", "{{.Id}}", *map(of.container, of.hosts)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return [_counter(container) for container in done.stdout.split()]


def _counter(container: str) -> Path:
    """The file that counts a container's CPU time, for each version of control groups and each driver."""
    top = Path("/sys/fs/cgroup")
    known = (top / "cpuacct/docker" / container / "cpuacct.usage", top / "docker" / container / "cpu.stat",
             top / f"system.slice/docker-{container}.scope/cpu.stat")  # fmt: skip
    return next(path for path in known if path.exists())


def used(path: Path) -> float:
    """The CPU seconds in such a file."""
    text = path.read_text().split()
    return int(text[0]) / 1e9 if len(text) == 1 else int(text[1]) / 1e6
