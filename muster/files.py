"""Files that survive a kill and a full disk: replaced whole, or written a line at a time.

A disk that takes no more (full, over its quota, read-only, broken) must not end a training run for the sake of its
diary: what cannot be written is lost.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_BALLAST, _BALLAST_BYTES = ".ballast", 256 * 1024


def replace(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text)
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def keep_ballast(folder: Path) -> None:
    """Take up some of the disk, to be given back for what has to be said once the disk is full."""
    with suppress(OSError):
        (folder / _BALLAST).write_bytes(os.urandom(_BALLAST_BYTES))  # zeros take no room on some file systems


def surely(write: Callable[[], object], folder: Path | None) -> bool:
    """`write`, and again without the ballast of `folder` where the disk takes no more; whether it was written."""
    for room in (folder / _BALLAST if folder else None, None):
        try:
            write()
            return True
        except OSError:
            if room is None:
                return False
            with suppress(OSError):
                room.unlink()
    return False


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a JSON-lines file; none when there is no file. A torn last line is left out."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    found = []
    for line in text.splitlines():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


class Lines:
    """A JSON-lines file: one `write` a line, so a kill tears at most the last one."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, **fields: Any) -> dict[str, Any]:
        """Append `fields` with the time in front; returns the line's content."""
        line = {"t": round(time.time(), 3), **fields}
        try:
            os.write(self._file, (json.dumps(line) + "\n").encode())
        except OSError as fault:
            with suppress(OSError):  # it may go to the same disk
                print(f"cannot write an event line: {fault}", file=sys.stderr)
        return line
