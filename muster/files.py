"""Files that survive a kill and a full disk: this module replaces a file as a whole, or appends one line at a time.

A disk that fails (full, over its quota, read-only, broken) must not end a training run because of its event files:
lines that cannot be written are lost.
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


def amount(size: int) -> str:
    """Bytes in decimal units: `340 kB`, `1.2 MB`."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


def replace(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old text or the new one, never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def keep_ballast(folder: Path) -> None:
    """Reserve some space in `folder`, which `surely` releases for an important file when the disk is full."""
    with suppress(OSError):
        (folder / _BALLAST).write_bytes(os.urandom(_BALLAST_BYTES))  # some file systems use no space for zeros


def surely(write: Callable[[], object], folder: Path | None) -> bool:
    """Call `write`; if it fails, delete the ballast of `folder` and call it again. Returns whether it succeeded."""
    for ballast in (folder / _BALLAST if folder else None, None):
        try:
            write()
            return True
        except OSError:
            if ballast is None:
                return False
            with suppress(OSError):
                ballast.unlink()
    return False


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a JSON-lines file, without incomplete lines; an empty list if there is no file."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    objects = []
    for line in text.splitlines():
        with suppress(json.JSONDecodeError):
            objects.append(json.loads(line))
    return objects


class Lines:
    """A JSON-lines file. It appends each line with a single `write`, so a kill can cut off only the last line."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, **fields: Any) -> dict[str, Any]:
        """Append a line with the time and `fields`, and return its content."""
        line = {"t": round(time.time(), 3), **fields}
        try:
            os.write(self._file, (json.dumps(line) + "\n").encode())
        except OSError as fault:
            with suppress(OSError):  # standard error may be a file on the same disk
                print(f"cannot write an event line: {fault}", file=sys.stderr)
        return line
