"""The time, depth, files and memory that a reader of others' texts may use; bytes of a host's answer: framing.py.

It is 64 MB above what the command needs anyway, 2 seconds of CPU a MB and 20 seconds in all, depth 50, and 200 files.
What a host answers to a command is cut in door/framing.py.
Pages that name a larger number say why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import chain

MOST_DEPTH, MOST_FILES = 50, 200
# A JSON text may have so many lists, objects and commas: each part takes up to 230 bytes of memory.
MOST_PARTS = 200_000
# Each of the things that a reader keeps takes up to 4 kB.
_MOST_KEPT = 8_000
# Together with the start of a command and what follows the reading, within 2 s a MB and 20 s in all.
_EVERY_S = 0.01
_BEHIND_S, _OVER_S, _MOST_S = (0.4, 1.0), (0.8, 1.2), (15.0, 17.0)


class Budget:
    """What one command may use to read text of others. The CPU time grows with the bytes read, and has an end.

    `now`: gives this thread's CPU time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.thread_time) -> None:
        self._now, self._began = now, now()
        self._asked_at, self._last = time.monotonic(), self._began
        self._megabytes, self._things = 0.0, 0

    def add(self, size: int) -> None:
        """So many more bytes were read, as they lie on the disk."""
        self._megabytes += size / 1e6

    def keep(self, things: int = 1) -> bool:
        """Whether there is room to keep so many more things."""
        self._things += things
        return self._things <= _MOST_KEPT

    @property
    def is_behind(self) -> bool:
        """Whether more time was used than the bytes so far allow: then a reader leaves details out."""
        return self._used > min(_BEHIND_S[0] + _BEHIND_S[1] * self._megabytes, _MOST_S[0])

    @property
    def is_over(self) -> bool:
        """Whether so much time was used that a reader has to end."""
        return self._used > min(_OVER_S[0] + _OVER_S[1] * self._megabytes, _MOST_S[1])

    @property
    def _used(self) -> float:
        # A thread uses no more time than goes by, and the clock of its CPU time may take 0.1 ms to ask.
        if (at := time.monotonic()) - self._asked_at > _EVERY_S:
            self._asked_at, self._last = at, self._now()
        return self._last - self._began


def is_shallow(value: object, most: int = MOST_DEPTH) -> bool:
    """Whether the lists and objects of a JSON value lie at most so deep in each other."""
    level: Iterable[object] = [value]
    for _ in range(most + 1):
        inner = [each for each in level if isinstance(each, list | dict)]
        if not inner:
            return True
        level = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in inner)
    return False
