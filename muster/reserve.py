"""Disk space reserved for a process's last messages, so that they are written on a full disk too; a node's journal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

_NAME, _BYTES = ".ballast", 256 * 1024
# In a node's private folder: what its processes tell each other, one line of JSON for each (trainer/node/notes.py).
JOURNAL = "journal.jsonl"


def reserve_room(folder: Path) -> None:
    """Reserve some disk space in `folder`, which `write_surely` frees for an important file."""
    with suppress(OSError):
        (folder / _NAME).write_bytes(os.urandom(_BYTES))  # some file systems use no space for zeros


def write_surely(write: Callable[[], object], folder: Path | None) -> bool:
    """Call `write`; if it fails, free the space reserved in `folder` and call it again.

    Returns whether it succeeded.
    """
    with suppress(OSError):
        write()
        return True
    with suppress(OSError):
        if folder:
            with suppress(OSError):  # for example, the disk has become read-only by now, or has no such file
                (folder / _NAME).unlink()
            write()
            return True
    return False


def note(folder: Path, **row: Any) -> bool:
    """Append a row to the journal in `folder`, even on a full disk, which may have cut the previous row short."""
    return write_surely(partial(_append, folder / JOURNAL, f"\n{json.dumps(row)}\n"), folder)


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
