"""Room that a process keeps for its last words, so that they are written on a full disk too."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_NAME, _BYTES = ".ballast", 256 * 1024


def reserve_room(folder: Path) -> None:
    """Take some room of the disk in `folder`, which `write_surely` gives back for an important file."""
    with suppress(OSError):
        (folder / _NAME).write_bytes(os.urandom(_BYTES))  # some file systems use no space for zeros


def write_surely(write: Callable[[], object], folder: Path | None) -> bool:
    """Call `write`; if it fails, give back the room in `folder` and call it again. Returns whether it succeeded."""
    for reserve in (folder / _NAME if folder else None, None):
        try:
            write()
            return True
        except OSError:
            if reserve is None:
                return False
            with suppress(OSError):
                reserve.unlink()
    return False
