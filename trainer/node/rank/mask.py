"""Hide a run's secrets in what its ranks print: each value becomes `***`, also in base64, however the stream is cut.

A script may print its settings, and a library may print a URL with a password or an `Authorization: Basic` header. So a
value is searched for in the text as readings.py reads it, and in base64. Short values are not hidden: they would hide
other words. Standard library only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from .readings import Reading, colours, condensed, is_plain, readings

LEAST = 8  # bytes
SHOWN = b"***"
# This many letters of a value may be shown; holding them back too would delay lines that only happen to end like that.
FEW = 3
_LONG = 16
_BLOCK = 1 << 16
# A value with fewer letters (punctuation aside) would hide lines of a table, so only its exact form is searched for.
_LEAST_TELLING = 6
# A longer value is searched for in parts of this size, because held-back data is read again with all that follows it.
_PART = 512
# The bytes that are held back at most: a colour sequence for each letter of the longest value, and some more.
_HELD_EACH, _HELD_MORE = 48, 4096
_ERRORS = "surrogateescape"
# The letters that are rarest in text come first.
_RAREST_FIRST = "zqjxkvwybgfmpucdlhrstnioea0123456789"


class _Begun(NamedTuple):
    """The end of a text that may be the beginning of a value: it begins at `at`, and its last letter is before `end`.

    `most`: how many letters of the value it has; `half`: whether that is more than half of the value.
    """

    at: int
    end: int
    most: int = 0
    half: bool = False


class Mask:
    """Masks one stream. `hidden`: the values; each line of a value with several lines is hidden too.

    Text that may be the beginning of a value is held back until more text follows. `settle` shows a few letters of it,
    and the rest of the value is hidden when it comes.
    """

    def __init__(self, hidden: Iterable[str]) -> None:
        values = {value.strip() for text in hidden for value in (text, *text.splitlines())}
        values = {value for value in values if len(value.encode(errors=_ERRORS)) >= LEAST}
        forms = {letters for value in values for letters in _forms(value)}
        self._values = sorted({part for letters in forms for part in _parts(letters)}, key=len)
        self._exact = sorted({form for value in values for form in _exact_forms(value)})
        longest = max(map(len, (*self._values, *self._exact)), default=0)
        self._held_most = _HELD_EACH * longest + _HELD_MORE
        # A long value is also hidden if only its last few letters are missing.
        self._heads = [(value[:-FEW] if len(value) >= _LONG else value, value) for value in self._values]
        self._letters = [_letters_of(head) for head, _ in self._heads]
        # The first `_passed` bytes of the held data have already been shown or hidden.
        self._held, self._passed, self._begun = b"", 0, _Begun(0, 0)

    def take(self, data: bytes) -> bytes:
        """Take the next data; returns what may be shown now. A possible beginning of a value is held back."""
        if not self._values and not self._exact:
            return data
        return b"".join(self._take(data[at : at + _BLOCK]) for at in range(0, len(data), _BLOCK))

    def settle(self) -> bytes:
        """Held-back data that may be shown though nothing has followed it.

        That is up to FEW letters of a value, or, in a line that has ended, up to half of a value.
        """
        begun = self._begun
        hides = begun.most > FEW and self._passed < begun.end
        if hides and (begun.half or not self._held.endswith(b"\n")):
            return b""
        shown, self._passed = self._held[self._passed :], len(self._held)
        return shown

    def rest(self) -> bytes:
        """The held-back data at the end of the stream; more than half of a value becomes `***`."""
        held, at, begun = self._held, self._passed, self._begun
        self._held, self._passed, self._begun = b"", 0, _Begun(0, 0)
        return SHOWN + held[begun.end :] if begun.half and at < begun.end else held[at:]

    def text(self, text: str) -> str:
        """Mask a text that is not part of the stream."""
        try:
            data = text.encode(errors=_ERRORS)
        except UnicodeEncodeError:  # text from JSON may have half of a surrogate pair
            data = text.encode(errors="replace")
        spans, _ = self._find(data)
        return _hidden(data, spans, 0, len(data))[0].decode(errors=_ERRORS)

    def _take(self, data: bytes) -> bytes:
        data = self._held + data
        unread = 0 if self._may_have_one(data) else max(0, len(data) - self._held_most)
        spans, begun = self._find(data[unread:])
        begin, end = begun.at + unread, begun.end + unread
        shown, at = _hidden(data, spans, self._passed, begin)
        self._held, self._passed = data[begin:], at - begin
        self._begun = _Begun(0, end - begin, begun.most, begun.half)
        if len(self._held) > self._held_most:
            return shown + self.rest()
        if self._held.endswith(b"\n") and (begun.most <= FEW or at >= end):
            shown += self.settle()
        return shown

    def _may_have_one(self, data: bytes) -> bool:
        """Whether a text may have a whole value. Often a long text lacks a letter of each value: that check is fast."""
        if len(data) < 4 * self._held_most or self._exact or not is_plain(data):
            return True
        return any(all(small in data or big in data for small, big in letters) for letters in self._letters)

    def _find(self, data: bytes) -> tuple[list[tuple[int, int]], _Begun]:
        """Where the values are in a text, and the end of it that may be the beginning of a value."""
        spans, begun = list[tuple[int, int]](), _Begun(len(data), 0)
        for reading in readings(data):
            letters = reading.letters
            hits = [hit for head, value in self._heads if head in letters for hit in _all(letters, head, value)]
            spans += [reading.place(*hit) for hit in _joined(hits)]
            tails = [(tail, len(value)) for value in self._values if (tail := _shared(letters, value))]
            if tails:
                most = max(tails)[0]
                half = any(2 * tail > of for tail, of in tails)
                begun = _both(begun, _Begun(*reading.place_of_last(most), most, half))
            elif reading.escaped:
                begun = _both(begun, _Begun(reading.end, 0))
        for value in self._exact:
            spans += _all(data, value, value)
            if tail := _shared(data, value):
                begun = _both(begun, _Begun(len(data) - tail, len(data), tail, 2 * tail > len(value)))
        return _joined(spans), begun


def _both(first: _Begun, other: _Begun) -> _Begun:
    return _Begun(
        min(first.at, other.at), max(first.end, other.end), max(first.most, other.most), first.half or other.half
    )


def _hidden(data: bytes, spans: list[tuple[int, int]], at: int, end: int) -> tuple[bytes, int]:
    """`data` from `at` to `end` with `***` for each span that begins before `end`; and the place that this reaches."""
    parts = list[bytes]()
    for begin, after in spans:
        if after > at and begin < end:
            parts += [data[at : max(at, begin)], SHOWN, colours(data[max(at, begin) : after])]
            at = after
    return b"".join((*parts, data[at:end])), max(at, end)


def _all(data: bytes, head: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    """The spans in `data` of a value's `head` and of as much of the rest as follows; overlapping spans become one."""
    at, begin, end = data.find(head), 0, 0
    while at >= 0:
        if at >= end:
            if end:
                yield begin, end
            begin = at
        after = at + len(head)
        while after - at < len(value) and data[after : after + 1] == value[after - at : after - at + 1]:
            after += 1
        end = max(end, after)
        at = data.find(head, at + 1)
    if end:
        yield begin, end


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in order; overlapping spans become one."""
    joined = list[tuple[int, int]]()
    for begin, end in sorted(spans):
        if joined and begin < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined


def _shared(data: bytes, value: bytes) -> int:
    """The length of the longest end of `data` that is a beginning of the value, but not the whole value."""
    at = data.find(value[:1], max(0, len(data) - len(value) + 1))
    while at >= 0 and not value.startswith(data[at:]):
        at = data.find(value[:1], at + 1)
    return len(data) - at if at >= 0 else 0


def _written(value: str) -> Iterator[bytes]:
    """The ways in which programs write a value inside other text; the last has `_` for all but letters and digits."""
    quoted = quote(value, safe="", errors=_ERRORS), quote(value, errors=_ERRORS), quote_plus(value, errors=_ERRORS)
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in value)
    for text in (value, *quoted, repr(value)[1:-1], ascii(value)[1:-1], json.dumps(value)[1:-1], name):
        yield text.encode(errors=_ERRORS)


def _letters_of(value: bytes) -> list[tuple[bytes, bytes]]:
    """The letters, lowercase and uppercase, that a text must have to contain this value."""
    return [(small.encode(), small.upper().encode()) for small in _RAREST_FIRST if small.encode() in value]


def _is_telling(letters: bytes) -> bool:
    return len(letters) - letters.count(b"_") - letters.count(b" ") >= _LEAST_TELLING


def _forms(value: str) -> Iterator[bytes]:
    """The letters of a value, as it is and in base64."""
    data = value.encode(errors=_ERRORS)
    plain = Reading(data).letters
    yield from filter(_is_telling, (plain, *map(condensed, _written(value))) if _is_telling(plain) else ())
    # base64 writes three bytes as four letters, so the letters depend on how many bytes come before the value. Letters
    # that also hold bits of other bytes are dropped.
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data).rstrip(b"=")
        whole = Reading(coded[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]).letters
        if len(whole) >= LEAST and _is_telling(whole):
            yield whole


def _parts(letters: bytes) -> Iterator[bytes]:
    yield from (letters[at : at + _PART] for at in range(0, len(letters) - _PART, _PART))
    yield letters[-_PART:]


def _exact_forms(value: str) -> Iterator[bytes]:
    if not _is_telling(Reading(value.encode(errors=_ERRORS)).letters):
        yield from _written(value)
