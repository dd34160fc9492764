"""What only saves time the next time: it is written if it can be."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..core.errors import DeployError
from ..run.files import own_files


def remember(folder: Path, name: str, data: bytes) -> None:
    """Write a file of a folder that is this user's alone; on a full or a closed disk, none."""
    with suppress(OSError, DeployError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own_files.write(folder, name, data)
