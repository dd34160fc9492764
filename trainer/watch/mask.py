"""Hide a run's secrets in what its ranks print: `***` in the place of each value, also where two pieces meet.

A script prints its settings, or a library a URL with a password or an `Authorization: Basic` header. So a value counts
as it is, as a URL or a string of code or of JSON writes it, and in base64. Short values are left: they would hide
other words. Standard library only.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

LEAST = 8  # bytes
SHOWN = b"***"


class Mask:
    """For one stream. `hidden`: the values; of one with several lines each line counts too."""

    def __init__(self, hidden: Iterable[str]) -> None:
        values = {value.strip() for text in hidden for value in (text, *text.splitlines())}
        forms = {form for value in values if len(value.encode()) >= LEAST for form in _forms(value)}
        # The longest first: a value may be a part of another one.
        self._values = sorted(forms, key=len, reverse=True)
        self._held = b""

    def take(self, data: bytes) -> bytes:
        """What may be shown of the stream so far; the beginning of a value waits for what follows it."""
        if not self._values:
            return data
        data = self._held + data
        end = len(data) - self._begun(data)
        pattern = self._pattern(data)
        for match in pattern.finditer(data) if pattern else ():
            if match.start() < end < match.end():
                end = match.end()  # the end of a whole value only looks like the beginning of another
        self._held = data[end:]
        return pattern.sub(SHOWN, data[:end]) if pattern else data[:end]

    def text(self, text: str) -> str:
        """A text that is not part of the stream."""
        return self._masked(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")

    def rest(self) -> bytes:
        """What still waits: nothing followed it."""
        held, self._held = self._held, b""
        return self._masked(held)

    def _masked(self, data: bytes) -> bytes:
        pattern = self._pattern(data)
        return pattern.sub(SHOWN, data) if pattern else data

    def _pattern(self, data: bytes) -> re.Pattern[bytes] | None:
        """What finds the values that `data` has; None without one. To look for each alone is ten times as fast."""
        present = [value for value in self._values if value in data]
        return re.compile(b"|".join(map(re.escape, present))) if present else None

    def _begun(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a value."""
        return max((_shared(data, value) for value in self._values), default=0)


def _shared(data: bytes, value: bytes) -> int:
    """How many bytes at the end of `data` the value begins with, but not all of it."""
    at = data.find(value[:1], max(0, len(data) - len(value) + 1))
    while at >= 0 and not value.startswith(data[at:]):
        at = data.find(value[:1], at + 1)
    return len(data) - at if at >= 0 else 0


def _forms(value: str) -> Iterator[bytes]:
    """The ways in which programs write a value that stands in other text."""
    data = value.encode()
    yield data
    for text in (quote(value, safe=""), quote(value), quote_plus(value), repr(value)[1:-1], json.dumps(value)[1:-1]):
        yield text.encode()
    # Three bytes are four letters, so it depends on what stands before the value; letters that hold other bits go.
    for before in range(3):
        for letters in (b"+/", b"-_"):
            coded = base64.b64encode(bytes(before) + data, letters).rstrip(b"=")
            whole = coded[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]
            if len(whole) >= LEAST:
                yield whole
