"""Files that only save time on the next push: if one cannot be written, that is no error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..core.errors import DeployError
from ..run.files import own_files


def remember(folder: Path, name: str, data: bytes) -> None:
    """Write a file in a folder that is private to this user; do nothing if the disk is full or read-only."""
    with suppress(OSError, DeployError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own_files.write(folder, name, data)
