"""Shows whether a node's agent lives: it keeps a file in the run folder locked. A second agent of the node waits.

The kernel releases the lock when the agent ends, in whatever way. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def hold_lock(folder: Path | None, name: str, start: str) -> Iterator[Callable[[int], None]]:
    """Show that this start of the node lives. Yields `leave(code)`, which notes the exit code; a kill notes none."""
    descriptor = -1
    with suppress(OSError):
        if folder:
            path = _path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)

    def write(text: str) -> None:
        with suppress(OSError):
            if descriptor >= 0:
                os.pwrite(descriptor, text.encode(), 0)

    with suppress(OSError):
        if descriptor >= 0:
            os.ftruncate(descriptor, 0)
    write(start)
    try:
        yield lambda code: write(f"{start} {code}")
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def read_lock(folder: Path, name: str, start: str) -> tuple[bool | None, int | None]:
    """Whether that start of the node lives (None: it has not begun), and its exit code (None: it was killed)."""
    try:
        descriptor = os.open(_path(folder, name), os.O_RDONLY)
    except OSError:
        return None, None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True, None
        own, _, code = os.read(descriptor, 1000).decode(errors="replace").partition(" ")
        if own != start:
            return None, None
        return False, int(code) if code.isdecimal() else None
    finally:
        os.close(descriptor)


def _path(folder: Path, name: str) -> Path:
    return folder / "nodes" / f".{name}.alive"
