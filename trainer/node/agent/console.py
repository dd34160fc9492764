"""A node's console: its ranks' lines, at a rate that a distant reader can follow; lines that are left out are counted.

The readers (output.py) put lines into a queue, and a thread writes them. Standard library only.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

# Sizes are in bytes; each line counts LINE_WEIGHT bytes more, the overhead of passing it on.
LINE_WEIGHT = 75
_QUEUE_MOST = 8 << 20
_CONSOLE_RATE = 4 << 20  # a second
# How much of the queue is still written when the node ends.
_LAST_MOST = 1 << 20
# How long the node waits at its end until the reader has taken that.
_REST_SECONDS = 2.0
# The engine keeps the last 100 MB of a console and drops the rest without notice. So after every 16 MB a line states
# how much the node has printed so far (contract.md). A reader, which counts as well, then knows how much is missing.
_COUNT_MARK, _COUNT_EVERY = b"muster-said", 16 << 20


@dataclass(frozen=True)
class _Chunk:
    """Whole lines for the console, with a note before them on how many bytes and lines were left out."""

    note: bytes
    skipped: int
    skipped_lines: int
    lines: bytes
    weight: int


class Console:
    """The node's console, written by a thread, so that a slow reader or a frozen engine never delays a rank."""

    def __init__(self) -> None:
        self._chunks = deque[_Chunk]()
        self._size = self._skipped = self._skipped_lines = 0
        self._total, self._due = 0, _COUNT_EVERY
        self._change, self._closed = threading.Condition(), threading.Event()
        self._writer = threading.Thread(target=self._run, daemon=True, name="muster-console")
        self._writer.start()

    def room(self) -> int:
        """How much more the queue takes now, in bytes, where each line counts LINE_WEIGHT more."""
        return _QUEUE_MOST - self._size

    def skip(self, size: int, lines: int) -> None:
        """Count output that was left out."""
        self._skipped, self._skipped_lines = self._skipped + size, self._skipped_lines + lines

    def put(self, lines: list[bytes]) -> None:
        """Queue whole lines."""
        if not lines:
            return
        with self._change:
            chunk = self._chunk(b"".join(lines), len(lines))
            self._chunks.append(chunk)
            self._size += chunk.weight
            self._change.notify()

    def finish(self, trim: bool) -> None:
        """Write what is left, waiting at most _REST_SECONDS for the reader.

        `trim`: write only the last of it, since the logs have it all.
        """
        with self._change:
            while trim and self._size > _LAST_MOST and len(self._chunks) > 1:
                chunk = self._chunks.popleft()
                self._size -= chunk.weight
                self.skip(chunk.skipped + len(chunk.lines), chunk.skipped_lines + chunk.lines.count(b"\n"))
            self._chunks.appendleft(self._chunk(b"", 0))
            self._closed.set()
            self._change.notify()
        self._writer.join(_REST_SECONDS)

    def _chunk(self, lines: bytes, count: int) -> _Chunk:
        """These lines, after a note on what was left out since the last chunk, if anything was."""
        weight = len(lines) + LINE_WEIGHT * count
        if self._skipped_lines <= 0:
            return _Chunk(b"", 0, 0, lines, weight)
        skipped, skipped_lines = self._skipped, self._skipped_lines
        self._skipped = self._skipped_lines = 0
        note = b"muster: %d lines (%d bytes) are not shown here; logs/rank-<r>.log has them\n" % (
            skipped_lines,
            skipped,
        )
        return _Chunk(note, skipped, skipped_lines, lines, weight + len(note))

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._chunks and not self._closed.is_set():
                    self._change.wait()
                if not self._chunks:
                    break
                chunk = self._chunks.popleft()
                self._size -= chunk.weight
            self._write(chunk.note + chunk.lines)
            self._closed.wait(chunk.weight / _CONSOLE_RATE)
        if self._due > _COUNT_EVERY:
            self._write(b"%s %d\n" % (_COUNT_MARK, self._total), count=False)

    def _write(self, data: bytes, count: bool = True) -> None:
        if count:
            data = self._counted(data)
        with suppress(OSError):  # if the console is on a full disk, the lines are lost: no rank may wait for it
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]

    def _counted(self, data: bytes) -> bytes:
        """`data`; if a count is due, with a line after its last whole line that states how much was printed so far."""
        self._total += len(data) + LINE_WEIGHT * data.count(b"\n")
        if self._total < self._due or b"\n" not in data:
            return data
        self._due = self._total + _COUNT_EVERY
        head, _, rest = data.rpartition(b"\n")
        return b"%s\n%s %d\n%s" % (head, _COUNT_MARK, self._total - len(rest), rest)
