"""Hosts without an engine for the faults: boxes that were started with `python -m tests.cluster.boxes`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.breaks import Fault
from benchmarks.breaks.trial import HOSTS, Rack


@dataclass(frozen=True)
class Boxes(Rack):
    """Three boxes as rack hosts: `rack-1` is `box-1`. `folder`: the boxes' folder; `index`: their package index."""

    folder: Path = Path()
    index: str = ""

    @property
    def ssh_config(self) -> Path:
        """The file for MUSTER_SSH_CONFIG."""
        return self.folder / "as-rack"

    def container(self, host: str) -> str:
        """The name of the container that is the host."""
        return f"{self.name}-{host.removeprefix('rack-')}"

    def is_up(self, host: str) -> bool:
        """Whether SSH works for the host's user."""
        return bool(self.ssh(host, "true").returncode == 0)

    @property
    def environment(self) -> dict[str, str]:
        """The environment for `fab`."""
        return {**super().environment, "UV_DEFAULT_INDEX": self.index}

    def command(self, fault: Fault, kind: str, run: str, folder: Path, *more: str) -> list[str]:
        """The command that starts the run: without --image, because boxes have no engine."""
        line = super().command(fault, kind, run, folder, *more)
        at = line.index("--image")
        return [*line[:at], *line[at + 2 :]]


def boxes(up: str) -> Boxes:
    """The boxes that run; `up` contains their folder, name and package index."""
    folder, name, index = up.split()
    made = Boxes(name, len(HOSTS), "", Path(folder), index)
    made.ssh_config.write_text((made.folder / "config").read_text().replace("Host box-", "Host rack-"))
    return made
