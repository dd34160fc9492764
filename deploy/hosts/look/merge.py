"""Merge lines from several hosts, each sorted by time, into one stream sorted by time, in bounded memory.

One thread per host adds lines, and waits while too many of its lines are queued; hosts/look/logs.py reads them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# The most bytes queued for one host, the overhead of a line in addition to its text, and the most lines of one block.
MOST_WAITING = 1 << 20
LINE_WEIGHT = 300
_BLOCK = 2000


class Line(NamedTuple):
    """One line: its source, its time (as text that sorts by time), and its text."""

    source: str
    stamp: str
    text: str


class _Feed:
    def __init__(self) -> None:
        self.lines: deque[Line] = deque()
        self.came: deque[float] = deque()
        self.size, self.over = 0, False


class Merge:
    """Merges the streams of `sources`. It passes a line on as soon as no earlier line can come.

    With `patience_s`, it also passes a line on after that time, or when too many lines of its source are queued: a
    silent host must not delay the others.
    """

    def __init__(self, sources: Iterable[str], patience_s: float | None = None) -> None:
        self._feeds = {source: _Feed() for source in sources}
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._closed = False

    def put(self, line: Line) -> None:
        """Add a line; waits while too many lines of its source are queued. After `close` it adds nothing."""
        feed = self._feeds[line.source]
        with self._changed:
            while feed.size > MOST_WAITING and not self._closed:
                self._changed.notify_all()
                self._changed.wait()
            if self._closed:
                return
            feed.lines.append(line)
            feed.size += LINE_WEIGHT + len(line.text)
            if self._patience_s is not None:
                feed.came.append(time.monotonic())
            if len(feed.lines) == 1:
                self._changed.notify_all()

    def end(self, source: str) -> None:
        """Note that the source has no more lines."""
        with self._changed:
            self._feeds[source].over = True
            self._changed.notify_all()

    def close(self) -> None:
        """Release every thread that waits in `put`, because the reader is gone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def blocks(self) -> Iterator[list[Line]]:
        """Yield the lines in order, in blocks, until every source has ended."""
        while True:
            with self._changed:
                while not (block := self._take()):
                    if all(feed.over for feed in self._feeds.values()):
                        return
                    self._changed.wait(self._patience_s)
                self._changed.notify_all()
            yield block

    def _take(self) -> list[Line]:
        block: list[Line] = []
        while len(block) < _BLOCK:
            filled = sorted((feed for feed in self._feeds.values() if feed.lines), key=lambda feed: feed.lines[0].stamp)
            if not filled:
                break
            first, until = filled[0], filled[1].lines[0].stamp if len(filled) > 1 else None
            full = self._patience_s is not None and first.size > MOST_WAITING
            if full or all(feed.lines or feed.over for feed in self._feeds.values()):
                self._move(first, until, block)
            elif self._waited(first):
                self._move(first, first.lines[0].stamp, block)
            else:
                break
        return block

    def _move(self, feed: _Feed, until: str | None, block: list[Line]) -> None:
        """Move the feed's lines up to the time `until` to the block."""
        lines = feed.lines
        while lines and len(block) < _BLOCK and (until is None or lines[0].stamp <= until):
            line = lines.popleft()
            feed.size -= LINE_WEIGHT + len(line.text)
            if feed.came:
                feed.came.popleft()
            block.append(line)

    def _waited(self, feed: _Feed) -> bool:
        return self._patience_s is not None and time.monotonic() - feed.came[0] >= self._patience_s
