"""Bytes that one push makes and sends: on this machine's disk and not in its memory, and gone with the push."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..core.errors import DeployError

_CHUNK = 1 << 20


class Spool:
    """A file without a name in `folder`: even a kill leaves nothing. Several threads may read it at once."""

    def __init__(self, folder: Path) -> None:
        self.size, self._folder = 0, folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (it goes with this object)
        except OSError as fault:
            raise self._fault(fault) from fault

    def write(self, data: bytes) -> int:
        """Append to it. Raises DeployError if the disk is full."""
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        except OSError as fault:
            raise self._fault(fault) from fault
        self.size += len(data)
        return len(data)

    def read(self) -> Iterator[bytes]:
        """All of it, in chunks."""
        at = 0
        while chunk := os.pread(self._file.fileno(), _CHUNK, at):
            yield chunk
            at += len(chunk)

    def _fault(self, fault: OSError) -> DeployError:
        return DeployError(
            f"cannot write what is sent to {self._folder}: {fault.strerror}",
            "free some disk space there, or set XDG_CACHE_HOME",
        )
