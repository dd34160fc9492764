"""A node's own output: lines of its ranks, no more than a reader far away can take; what is left out is counted.

The readers (output.py) put lines in, a thread writes them. Standard library only.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

# In bytes, where each line weighs LINE_WEIGHT more: that is what it costs to pass it on.
LINE_WEIGHT = 75
_QUEUE_MOST = 8 << 20
_CONSOLE_RATE = 4 << 20  # a second
# At the end, of what waits.
_LAST_MOST = 1 << 20
# So long a reader is waited for at the end.
_REST_SECONDS = 2.0
# The engine keeps the last 100 MB of a console and says nothing of the rest. So every 16 MB a line tells how much the
# node has printed so far (contract.md): a reader counts too, and knows what is missing.
_COUNT_MARK, _COUNT_EVERY = b"muster-said", 16 << 20


@dataclass(frozen=True)
class _Chunk:
    """Whole lines for the console; before them a note on what was left out: so many bytes and lines."""

    note: bytes
    skipped: int
    skipped_lines: int
    lines: bytes
    weight: int


class Console:
    """The node's own output, written by a thread: a reader that is slow, or a frozen engine, never holds up a rank."""

    def __init__(self) -> None:
        self._chunks = deque[_Chunk]()
        self._size = self._skipped = self._skipped_lines = 0
        self._total, self._due = 0, _COUNT_EVERY
        self._change, self._closed = threading.Condition(), threading.Event()
        self._writer = threading.Thread(target=self._run, daemon=True, name="muster-console")
        self._writer.start()

    def room(self) -> int:
        """How much more is taken now, in bytes with the weight of lines."""
        return _QUEUE_MOST - self._size

    def skip(self, size: int, lines: int) -> None:
        """Count what was not taken."""
        self._skipped, self._skipped_lines = self._skipped + size, self._skipped_lines + lines

    def put(self, lines: list[bytes]) -> None:
        """Take whole lines."""
        if not lines:
            return
        with self._change:
            chunk = self._chunk(b"".join(lines), len(lines))
            self._chunks.append(chunk)
            self._size += chunk.weight
            self._change.notify()

    def finish(self, trim: bool) -> None:
        """Write what is left, for as long as somebody takes it; `trim`: of much only the last, the logs have all."""
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
        """Lines behind a note on what was not taken since the last one; without one where all was."""
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
        with suppress(OSError):  # where the console is on a full disk it is lost: no rank may wait for that
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]

    def _counted(self, data: bytes) -> bytes:
        """`data`; where that is due, behind its last whole line how much was said so far."""
        self._total += len(data) + LINE_WEIGHT * data.count(b"\n")
        if self._total < self._due or b"\n" not in data:
            return data
        self._due = self._total + _COUNT_EVERY
        head, _, rest = data.rpartition(b"\n")
        return b"%s\n%s %d\n%s" % (head, _COUNT_MARK, self._total - len(rest), rest)
