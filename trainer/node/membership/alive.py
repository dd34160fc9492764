"""Shows whether a node's agent lives: it keeps a file in the run folder locked. A second agent of the node waits.

The kernel releases the lock when the agent ends, in whatever way. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import sys
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
            _wait_for_lock(descriptor, name)

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


def _wait_for_lock(descriptor: int, name: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        words = f"{name}: waits until another agent of this node has ended"
        with suppress(OSError):  # its log may be on a full disk
            print(f"{words} (two nodes on one host need a MUSTER_NODE each)", file=sys.stderr, flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


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
