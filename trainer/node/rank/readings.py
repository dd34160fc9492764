"""The letters of a text as a reader sees them, with escapes (%2F, &#47;) undone, and where each is, for mask.py.

A value may be printed in colours, over several lines, in a URL, in a string of code or JSON, or in a name that cannot
have a slash. So sequences that only control how a text is drawn are removed, escapes are undone, upper and lower case
are made equal, and so is all punctuation. Each of these steps remembers where its letters come from. Standard library
only.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

_PIECE = 1 << 10
_FOLD = bytes(
    byte if byte > 126 else ord(" ") if byte < 33 else ord(chr(byte).lower()) if chr(byte).isalnum() else ord("_")
    for byte in range(256)
)
_BASES, _BYTES = {"octal": 8, "decimal": 10}, ("percent", "x", "octal")
_SEQUENCE = rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|[ -/]{0,8}[0-OQ-WYZ\\^_`-~])"
_SEQUENCE_BEGUN = rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[ -/]{0,8})\Z"


class _Way:
    """One way to write a text, such as colours or escapes: its `tokens` begin with `mark`.

    `begun` finds an incomplete token at the end of a text. `means`: a token stands for a letter; otherwise for nothing.
    """

    def __init__(self, mark: bytes, tokens: bytes, begun: bytes, means: bool = False, window: int = 96) -> None:
        self.mark, self.means, self.window = mark, means, window
        # All tokens begin with one byte, because `re` then skips other text ten times faster than with several.
        self.tokens, self.begun = re.compile(tokens, re.VERBOSE), re.compile(begun, re.VERBOSE)


_TERMINAL = _Way(b"\x1b", _SEQUENCE, _SEQUENCE_BEGUN)
# With hyperlinks as well: their addresses are not shown, only the text that leads there.
_TERMINAL_LINKS = _Way(
    b"\x1b",
    _SEQUENCE + rb"|\x1b\][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)",
    _SEQUENCE_BEGUN + rb"|\x1b\][^\x07\x1b\n]{0,2048}\x1b?\Z",
    window=2100,
)
_WAYS = (
    # A margin, or the name that torchrun puts before a rank's line.
    _Way(
        b"\n",
        rb"\n(?:[ \t]+|\[[a-z]{1,16}[0-9]{1,6}\]:[ \t]?)",
        rb"\n[ \t]*(?:\[[a-z]{0,16}[0-9]{0,6}\]?:?)?\Z",
    ),
    # Invisible characters, and frames drawn around text.
    *(_Way(mark, mark + b"+", mark + rb"(?!)") for mark in (b"\x00", b"\x07", b"\x08")),
    _Way(
        b"\xe2",
        rb"\xe2(?:[\x94-\x96][\x80-\xbf]|\x80[\x8b-\x8f]|\x81\xa0)",
        rb"\xe2[\x80\x81\x94-\x96]?\Z",
    ),
    _Way(b"\xc2", rb"\xc2\xad", rb"\xc2\Z"),
    _Way(b"\xef", rb"\xef\xbb\xbf", rb"\xef\xbb?\Z"),
    # Several levels of escaping count as one: \\u002F and %252F are a slash.
    _Way(
        b"\\",
        rb"""\\\\*(?:u(?P<u>[0-9a-fA-F]{4})|u\{(?P<braces>[0-9a-fA-F]{1,6})\}|U(?P<long>[0-9a-fA-F]{8})
             |x(?P<x>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})|[abefnrtv])?""",
        rb"\\\\*(?:u\{?[0-9a-fA-F]{0,6}|U[0-9a-fA-F]{0,7}|x[0-9a-fA-F]?|[0-3][0-7]?)?\Z",
        means=True,
    ),
    _Way(
        b"%",
        rb"%(?:25)*(?:(?P<percent>[0-9a-fA-F]{2})|u(?P<percent_u>[0-9a-fA-F]{4}))",
        rb"%(?:25)*(?:[0-9a-fA-F]|u[0-9a-fA-F]{0,3})?\Z",
        means=True,
    ),
    # A named reference such as &sol; counts as punctuation.
    _Way(
        b"&",
        rb"""&(?:\#[xX](?P<reference>[0-9a-fA-F]{1,8})|\#(?P<decimal>[0-9]{1,8})|(?P<name>[a-zA-Z]{2,8}));""",
        rb"&(?:\#(?:[xX]?[0-9a-fA-F]{0,8})?|[a-zA-Z]{0,8})\Z",
        means=True,
    ),
)
_MARGIN = re.compile(rb"\n(?:[ \t]|\[[a-z]{0,16}[0-9]{0,6}(?:\]:|\]?\Z))")
# The bytes that begin a token, except bytes that are not ASCII, and the newline of a margin.
_MARKS = b"".join((_TERMINAL.mark, *(way.mark for way in _WAYS if way.mark.isascii() and way.mark != b"\n")))


class _Step:
    """A text in which each token is replaced by what it means, with the places in the data that the bytes come from."""

    def __init__(self, data: bytes, way: _Way) -> None:
        self._data, self._way = data, way
        self.text = way.tokens.sub(_meaning if way.means else b"", data)
        self._pieces, self._firsts = list[tuple[int, int]](), list[int]()

    def place(self, first: int, last: int) -> tuple[int, int]:
        """The place in the data of the text's bytes from `first` to before `last`."""
        if not self._pieces:
            self._cut()
        return self._of(first)[0], self._of(last - 1)[1]

    def _of(self, byte: int) -> tuple[int, int]:
        which = bisect_right(self._firsts, byte) - 1
        begin, end = self._pieces[which]
        return (begin, end) if end else (begin + byte - self._firsts[which], begin + byte - self._firsts[which] + 1)

    def _cut(self) -> None:
        """Find the pieces: tokens, and the text between two tokens (its end is 0, since it keeps its length)."""
        at, counts = 0, list[int]()
        for token in self._way.tokens.finditer(self._data):
            if token.start() > at:
                self._pieces.append((at, 0))
                counts.append(token.start() - at)
            at = token.end()
            if self._way.means and (meaning := _meaning(token)):
                self._pieces.append(token.span())
                counts.append(len(meaning))
        self._pieces.append((at, 0))
        self._firsts = [0, *accumulate(counts)]


class Reading:
    """One reading of `data`: its `letters`, and where they are in it.

    `level` 0: as it is; 1: as it is drawn, with escapes undone; 2: also without the addresses of links. `end`: where an
    incomplete token begins; `escaped`: whether that token may become a letter.
    """

    def __init__(self, data: bytes, level: int = 0) -> None:
        self._level, self._data, self.end, self.escaped = level, data, len(data), False
        self._steps, self._firsts = list[_Step](), list[int]()
        for way in (_TERMINAL_LINKS if level == 2 else _TERMINAL, *_WAYS) if level else ():
            if way.mark not in data:
                continue
            if begun := way.begun.search(data, max(0, len(data) - way.window)):
                self.end, self.escaped = self._back(begun.start(), len(data))[0], self.escaped or way.means
                data = data[: begun.start()]
            if way.tokens.search(data):
                self._steps.append(_Step(data, way))
                data = self._steps[-1].text
        self._drawn = data
        self.letters = _folded(data)

    def place(self, first: int, last: int) -> tuple[int, int]:
        """The place in the data of the letters from `first` to before `last`."""
        if not self._firsts:
            begins = range(0, len(self._drawn), _PIECE)
            counts = (_PIECE - _breaks(self._drawn, begin, begin + _PIECE) for begin in begins)
            self._firsts = [0, *accumulate(counts)][:-1]
        return self._back(self._of(first), self._of(last - 1) + 1)

    def place_of_last(self, count: int) -> tuple[int, int]:
        """The place of the last `count` letters. Reading the data's end again is faster than finding all places."""
        if not self._level:
            end = len(self._data.rstrip(b"\r\n"))
            at = latest = end - count
            while (before := latest - _breaks(self._data, at, end)) != at:
                at = before
            return at, end
        last = self.letters[-count:]
        for window in (4 * count + 256, len(self._data)):
            begin = max(0, len(self._data) - window)
            part = Reading(self._data[begin:], self._level) if begin else self
            if part.letters.endswith(last):
                break
        first, end = part.place(len(part.letters) - count, len(part.letters))
        return begin + first, begin + end

    def _back(self, first: int, last: int) -> tuple[int, int]:
        for step in reversed(self._steps):
            first, last = step.place(first, last)
        return first, last

    def _of(self, letter: int) -> int:
        which = bisect_right(self._firsts, letter) - 1
        at = first = which * _PIECE + letter - self._firsts[which]
        while (after := first + _breaks(self._drawn, which * _PIECE, at + 1)) != at:
            at = after
        return at


def readings(data: bytes) -> Iterator[Reading]:
    """All different readings of a text. The first is fast; the others are made only if the text needs them."""
    yield Reading(data)
    if not is_plain(data) or _MARGIN.search(data):
        yield Reading(data, 1)
        if b"\x1b]" in data:
            yield Reading(data, 2)


def is_plain(data: bytes) -> bool:
    """Whether a text is ASCII, without escapes and without sequences that are not shown; it may have margins."""
    return data.isascii() and not any(mark in data for mark in _MARKS)


def condensed(text: bytes) -> bytes:
    """The letters of a whole text, with its escapes undone."""
    for way in _WAYS:
        text = way.tokens.sub(_meaning, text) if way.means else text
    return _folded(text)


def colours(text: bytes) -> bytes:
    """The sequences in a text that set colours or move the cursor."""
    return b"".join(_TERMINAL.tokens.findall(text)) if b"\x1b" in text else b""


def _folded(text: bytes) -> bytes:
    text = text.replace(b"\n", b"")
    return (text.replace(b"\r", b"") if b"\r" in text else text).translate(_FOLD)


def _breaks(data: bytes, begin: int, end: int) -> int:
    return data.count(b"\n", begin, end) + data.count(b"\r", begin, end)


def _meaning(escape: re.Match[bytes]) -> bytes:
    """The letter that an escape stands for; empty for white space, and for an escape that is no letter."""
    way = escape.lastgroup
    if way is None:
        return b""
    if way == "name":
        return b"_"
    code = int(escape[way], _BASES.get(way, 16))
    if way in _BYTES:
        return bytes((code,))
    return chr(code).encode(errors="surrogatepass") if code <= sys.maxunicode else b""
