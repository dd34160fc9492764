"""Which images a host has proved to this machine: it created a container from each, after a push had brought it.

Remembered in ~/.cache/muster/proved, a line `HOST MARK` for each. To create a container and to remove it again takes a
host most of the time of a push of one changed file; a proved image must only be shown again, with its layers. If the
name belongs to another machine by now, that machine shows its own layers; only the container is not tried there then.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Lock

from ...run import own_files

_MOST = 1000  # lines; the oldest go first
_NAME = "proved"


class Proofs:
    """The proofs in `folder`. Several threads may ask. If the file cannot be read or written, hosts prove once more."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, Lock()
        self._lines = self._read()

    def has(self, host: str, mark: str) -> bool:
        """Whether the host proved the image with this mark."""
        return f"{host} {mark}" in self._lines

    def add(self, host: str, mark: str) -> None:
        """The host proved it just now."""
        if not self.has(host, mark):
            self._change(f"{host} {mark}", add=True)

    def drop(self, host: str, mark: str) -> None:
        """Drop a proof: the host gets the file again, and must prove it again."""
        if self.has(host, mark):
            self._change(f"{host} {mark}", add=False)

    def _change(self, line: str, add: bool) -> None:
        with self._lock, suppress(OSError):
            # Another push may have added lines meanwhile.
            self._lines = self._read()
            self._lines.pop(line, None)
            if add:
                self._lines[line] = None
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            own_files.write(self._folder, _NAME, "\n".join([*self._lines][-_MOST:]).encode())

    def _read(self) -> dict[str, None]:
        with suppress(OSError):
            return dict.fromkeys(own_files.read(self._folder / _NAME).decode(errors="replace").split("\n"))
        return {}
