"""Limits on the time, depth, files and memory that a command may use to read text that somebody else wrote.

The limits are 64 MB of memory beyond what the command needs anyway, 2 seconds of CPU time per MB read and 20 seconds
in all, a nesting depth of 50, and 200 files. door/framing.py cuts what a host answers to a command.
Documentation pages that allow more say why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import chain

MOST_DEPTH, MOST_FILES = 50, 200
# A JSON text may have at most this many lists, objects and commas together: each takes up to 230 bytes of memory.
MOST_PARTS = 200_000
# A reader may keep at most this many things: each takes up to 4 kB of memory.
_MOST_KEPT = 8_000
# With the command's start and what it does after reading, these stay within 2 s per MB and 20 s in all.
_EVERY_S = 0.01
_BEHIND_S, _OVER_S, _MOST_S = (0.4, 1.0), (0.8, 1.2), (15.0, 17.0)


class Budget:
    """What one command may use to read text that others wrote. The CPU time grows with the bytes read, up to a maximum.

    `now`: returns this thread's CPU time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.thread_time) -> None:
        self._now, self._began = now, now()
        self._asked_at, self._last = time.monotonic(), self._began
        self._megabytes, self._things = 0.0, 0

    def add(self, size: int) -> None:
        """Count `size` more bytes as read, in their size on disk (before decompression)."""
        self._megabytes += size / 1e6

    def keep(self, things: int = 1) -> bool:
        """Count `things` more things as kept, and return whether the limit still allows them."""
        self._things += things
        return self._things <= _MOST_KEPT

    @property
    def is_behind(self) -> bool:
        """Whether reading took more time than the bytes read so far allow: the reader then leaves out details."""
        return self._used > min(_BEHIND_S[0] + _BEHIND_S[1] * self._megabytes, _MOST_S[0])

    @property
    def is_over(self) -> bool:
        """Whether reading took so much time that the reader must stop."""
        return self._used > min(_OVER_S[0] + _OVER_S[1] * self._megabytes, _MOST_S[1])

    @property
    def _used(self) -> float:
        # A thread cannot use more CPU time than has passed on the wall clock. Reading the CPU clock may take 0.1 ms, so
        # the code reads it at most once per _EVERY_S.
        if (at := time.monotonic()) - self._asked_at > _EVERY_S:
            self._asked_at, self._last = at, self._now()
        return self._last - self._began


def is_shallow(value: object, most: int = MOST_DEPTH) -> bool:
    """Whether the lists and objects of a JSON value are nested at most `most` levels deep."""
    level: Iterable[object] = [value]
    for _ in range(most + 1):
        inner = [each for each in level if isinstance(each, list | dict)]
        if not inner:
            return True
        level = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in inner)
    return False
