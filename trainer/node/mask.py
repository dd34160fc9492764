"""Hide a run's secrets in what its ranks print: `***` in the place of each value, also where two pieces meet.

A script prints its settings, or a library a URL with a password. Short values are left: they would hide other words.
Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LEAST = 8  # bytes
SHOWN = b"***"


class Mask:
    """For one stream. `hidden`: the values; of one with several lines each line counts too."""

    def __init__(self, hidden: Iterable[str]) -> None:
        values = [value.strip().encode() for text in hidden for value in (text, *text.splitlines())]
        # The longest first: a value may be a part of another one.
        self._values = sorted({value for value in values if len(value) >= LEAST}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._values))) if self._values else None
        self._held = b""

    def take(self, data: bytes) -> bytes:
        """What may be shown of the stream so far; the beginning of a value waits for what follows it."""
        if not self._pattern:
            return data
        data = self._held + data
        end = len(data) - self._begun(data)
        for match in self._pattern.finditer(data):
            if match.start() < end < match.end():
                end = match.end()  # the end of a whole value only looks like the beginning of another
        self._held = data[end:]
        return self._pattern.sub(SHOWN, data[:end])

    def rest(self) -> bytes:
        """What still waits: nothing followed it."""
        held, self._held = self._held, b""
        return self._pattern.sub(SHOWN, held) if self._pattern else held

    def _begun(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a value."""
        most = min(len(data), max(map(len, self._values)) - 1)
        last = data[-most:] if most else b""
        for length in range(len(last), 0, -1):
            end = last[-length:]
            if any(value.startswith(end) for value in self._values):
                return length
        return 0
