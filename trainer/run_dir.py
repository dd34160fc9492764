"""The run folder as a rank writes it: its events and its output. Paths and line formats are in docs/contract.md."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.files import Lines


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
