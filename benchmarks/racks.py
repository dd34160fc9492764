"""A rack of our own to measure on: hosts with sshd and a Docker engine, gone at the end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.venv import HOME
from deploy.job.cluster import from_flag
from deploy.job.inventory import Host

_NAME = "bench"
_CONFIG = HOME / "rack" / f".state-{_NAME}" / "ssh_config"


@dataclass(frozen=True)
class Rack:
    """Hosts that are up: `names` as the ssh_config has them."""

    names: tuple[str, ...]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The same for `deploy.door.session.open_all`."""
        return from_flag(",".join(self.names)).hosts

    @property
    def containers(self) -> dict[str, str]:
        """By name: the container on this machine's engine that is the host."""
        return {name: f"muster-{_NAME}-{name.removeprefix('rack-')}" for name in self.names}

    def ssh(self, name: str) -> list[str]:
        """The command that runs another one on a host."""
        return ["ssh", "-F", str(_CONFIG), "-o", "BatchMode=yes", name]

    def on(self, name: str, *command: str) -> str:
        """What a command on a host prints; raises when it fails."""
        return _output([*self.ssh(name), *command])

    def received(self, name: str) -> int:
        """Bytes that came in over the host's network, packet headers included."""
        return int(self.on(name, "cat", "/sys/class/net/eth0/statistics/rx_bytes"))


@contextmanager
def rack(nodes: int, store: str) -> Iterator[Rack]:
    """`make rack` under a name of its own; MUSTER_SSH_CONFIG names it meanwhile."""
    _make("rack", f"NODES={nodes}", f"STORE={store}")
    before = os.environ.get("MUSTER_SSH_CONFIG")
    os.environ["MUSTER_SSH_CONFIG"] = str(_CONFIG)
    try:
        yield Rack(tuple(f"rack-{number}" for number in range(1, nodes + 1)))
    finally:
        os.environ.pop("MUSTER_SSH_CONFIG") if before is None else os.environ.update(MUSTER_SSH_CONFIG=before)
        _make("rack-down")


def _make(target: str, *options: str) -> None:
    subprocess.run(
        ["make", "--silent", target, f"RACK={_NAME}", *options], cwd=HOME, check=True, stdout=subprocess.PIPE
    )


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
