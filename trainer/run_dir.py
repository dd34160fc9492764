"""What a rank writes to the run folder, and under which number: events, output, metrics.

contract.md has the formats.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.files import Lines

from .node.rank.place import in_run


class RankFolder:
    """The files of one rank in the run folder.

    `file`: the number in the names of its files, if it is not the rank. Then each host has its own run folder, and the
    metrics of all hosts are collected in one place. `shown`: returns the part of a text that its events may show.
    `launcher`: the process is a command that starts ranks itself, which have their own numbers.
    """

    def __init__(
        self,
        path: Path,
        rank: int,
        node: str,
        file: int | None = None,
        shown: Callable[[str], str] = str,
        launcher: bool = False,
    ) -> None:
        self._shown, self._own = shown, {"launcher": True} if launcher else {}
        self.path, self.rank, self.node = path, in_run(rank), node
        self.file = in_run(rank if file is None else file)
        self.metrics = f"metrics-{node}.jsonl" if file else "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.events = path / "ranks" / f"rank-{self.file}.jsonl"
        self._lines = Lines(self.events)

    def event(self, kind: str, **fields: Any) -> None:
        """Append one event of this rank."""
        about = {name: _each_text(value, self._shown) for name, value in fields.items()}
        self._lines.add(**{"kind": kind, **about, **self._own, "rank": self.rank, "node": self.node})

    def take_output(self) -> int:
        """Redirect this process's output to `logs/rank-<r>.log` and return the console's descriptor.

        If a run has secrets, its agent reads all the output instead, and writes the log.

        This redirects file descriptors, so the log also contains the output of native code, for example of gloo or NCCL
        while the process dies.
        """
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        console = os.dup(2)
        log = self.path / "logs" / f"rank-{self.file}.log"
        with suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            for descriptor in (1, 2) if self._shown is str else ():
                os.dup2(file, descriptor)
            os.close(file)
        sys.stdout, sys.stderr = (_open_tolerant(descriptor) for descriptor in (1, 2))
        return console


def _each_text(value: Any, shown: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {name: _each_text(part, shown) for name, part in value.items()}
    return [_each_text(part, shown) for part in value] if isinstance(value, list | tuple) else value


class _Tolerant(io.RawIOBase):
    """A descriptor whose writes never fail: a full disk must not turn a print or a traceback into another error."""

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


def _open_tolerant(descriptor: int) -> io.TextIOWrapper:
    buffer = io.BufferedWriter(_Tolerant(descriptor))
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)
