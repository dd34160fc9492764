"""Hosts without an engine for the faults: boxes that `python -m tests.cluster.boxes` has started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.breaks import Fault
from benchmarks.breaks.trial import HOSTS, Rack


@dataclass(frozen=True)
class Boxes(Rack):
    """Three boxes as hosts of a rack: `rack-1` is `box-1`. `folder`: theirs; `index`: of packages."""

    folder: Path = Path()
    index: str = ""

    @property
    def ssh_config(self) -> Path:
        """What MUSTER_SSH_CONFIG shall say."""
        return self.folder / "as-rack"

    def container(self, host: str) -> str:
        """The container that is the host."""
        return f"{self.name}-{host.removeprefix('rack-')}"

    def is_up(self, host: str) -> bool:
        """Whether SSH answers the host's user."""
        return bool(self.ssh(host, "true").returncode == 0)

    @property
    def environment(self) -> dict[str, str]:
        """What `fab` gets."""
        return {**super().environment, "UV_DEFAULT_INDEX": self.index}

    def command(self, fault: Fault, kind: str, run: str, folder: Path, *more: str) -> list[str]:
        """The command that starts the run: no image can be named there."""
        line = super().command(fault, kind, run, folder, *more)
        at = line.index("--image")
        return [*line[:at], *line[at + 2 :]]


def boxes(up: str) -> Boxes:
    """Those that are `up`: their folder, their name and their index of packages."""
    folder, name, index = up.split()
    made = Boxes(name, len(HOSTS), "", Path(folder), index)
    made.ssh_config.write_text((made.folder / "config").read_text().replace("Host box-", "Host rack-"))
    return made
