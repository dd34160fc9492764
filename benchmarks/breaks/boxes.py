"""Hosts without an engine for the faults: boxes that `python -m tests.cluster.boxes` has started."""

from __future__ import annotations

from pathlib import Path

from benchmarks.breaks import Fault
from benchmarks.breaks.trial import Rack


class Boxes(Rack):
    """Three boxes as hosts of a rack: `rack-1` is `box-1`. `up`: their folder, their name, their index of packages."""

    def __init__(self, up: str) -> None:
        folder, name, self._index = up.split()
        super().__init__(name, "")
        self.config = Path(folder) / "as-rack"
        self.config.write_text((Path(folder) / "config").read_text().replace("Host box-", "Host rack-"))

    def container(self, host: str) -> str:
        """The container that is the host."""
        return f"{self.name}-{host.removeprefix('rack-')}"

    @property
    def environment(self) -> dict[str, str]:
        """What `fab` gets."""
        return {**super().environment, "UV_DEFAULT_INDEX": self._index}

    def command(self, fault: Fault, kind: str, run: str, folder: Path, *more: str) -> list[str]:
        """The command that starts the run: no image can be named there."""
        line = super().command(fault, kind, run, folder, *more)
        at = line.index("--image")
        return [*line[:at], *line[at + 2 :]]
