"""The run folder as a rank writes it: events, metrics, logs. Paths and line formats are in docs/contract.md.

A disk that takes no more (full, over its quota, read-only, broken) must not end a training run for the sake of its
diary: what cannot be written is lost.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_BALLAST, _BALLAST_BYTES = ".ballast", 256 * 1024

# In the agent's folder for its ranks, until somebody asks the node to stop: taking a file away needs no room on a disk.
UNASKED = "unasked"


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


class RankFolder:
    """What one rank writes below the run folder."""

    def __init__(self, path: Path, rank: int, node: str) -> None:
        self.path, self.rank, self.node = path, rank, node
        self.checkpoints = path / "checkpoints"
        self._events = Lines(path / "ranks" / f"rank-{rank}.jsonl")

    def event(self, kind: str, **fields: Any) -> None:
        """Append one event of this rank."""
        self._events.add(**{"kind": kind, **fields, "rank": self.rank, "node": self.node})

    def take_output(self) -> int:
        """Send this process's output, native code's included, to `logs/rank-<r>.log`; returns the console's descriptor.

        At the level of file descriptors: what gloo or NCCL print while the process dies is kept too.
        """
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        console = os.dup(2)
        log = self.path / "logs" / f"rank-{self.rank}.log"
        with suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            for descriptor in (1, 2):
                os.dup2(file, descriptor)
            os.close(file)
        sys.stdout, sys.stderr = (_patient(descriptor) for descriptor in (1, 2))
        return console


class _Patient(io.RawIOBase):
    """A descriptor on which nothing fails: print and tracebacks go there, also while an error is handled."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with suppress(OSError):
            return os.write(self._descriptor, data)
        return len(data)


def _patient(descriptor: int) -> io.TextIOWrapper:
    buffer = io.BufferedWriter(_Patient(descriptor))
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)
