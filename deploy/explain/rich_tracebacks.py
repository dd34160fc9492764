"""Tracebacks as the library rich draws them: in a frame, the error below it wrapped at the frame's width. Pure.

    ╭──────── Traceback (most recent call last) ────────╮
    │ /home/me/train.py:4 in load                       │
    │ ❱ 4 │   raise RuntimeError("a long message")      │
    ╰───────────────────────────────────────────────────╯
    RuntimeError: a long message, of which rich put the
    rest on the next line

The frame quotes source code. An error that the code names is no error of the run.
"""

from __future__ import annotations

import re

from .words import EXCEPTION

_BEGIN, _TITLE = "╭".encode(), b"Traceback (most recent call last)"
_END, _GROUP = "╰".encode(), b"Sub-exception"
_FILE = re.compile(rb"(.{0,200}?)%b (/[^\r\n]{1,300}?):(\d{1,9}) in (\S{1,200})\s{1,200}%b" % (2 * ("│".encode(),)))
_DIGIT = re.compile(rb"\d")
# No message of this many lines is one that a person reads.
_MOST_LINES = 20
# Nor has a launcher a longer prefix.
_MOST_PREFIX = 300


def unfold(lines: list[bytes]) -> list[bytes]:
    """The lines with each drawn traceback as Python prints it: its files, and its error whole in one line.

    The other lines of the drawing are empty, so that each line keeps its number. A group of exceptions stays as it is:
    its errors stand in frames of their own.
    """
    if not any(_END in line for line in lines):
        return lines
    made, begin = list(lines), None
    for index, line in enumerate(lines):
        if _BEGIN in line and _TITLE in line:
            begin = index
        elif begin is not None and _END in line and (prefix := _before(line, _END)) == _before(lines[begin], _BEGIN):
            if not any(_GROUP in each for each in lines[begin:index]):
                made[begin + 1 : index] = [_plain(each) for each in lines[begin + 1 : index]]
                _join(made, index + 1, prefix, len(line[len(prefix) :].decode(errors="replace").rstrip()))
            begin = None
    return made


def _before(line: bytes, mark: bytes) -> bytes:
    """What a launcher puts before each line of a rank, with any numbers."""
    return _DIGIT.sub(b"0", line[: min(line.find(mark), _MOST_PREFIX)])


def _plain(line: bytes) -> bytes:
    """The line that Python prints for one that names a file; of other lines of a drawing nothing."""
    match = _FILE.match(line)
    return b'%b  File "%b", line %b, in %b' % match.groups() if match else b""


def _join(lines: list[bytes], at: int, prefix: bytes, width: int) -> None:
    """Put the error that begins at line `at` into that line; `width` is the frame's, in characters."""
    whole, before = b"", ""
    for place in range(at, min(at + _MOST_LINES, len(lines))):
        line = lines[place]
        text = line[len(prefix) :].decode(errors="replace").rstrip()
        if not text or _DIGIT.sub(b"0", line[: len(prefix)]) != prefix:
            break
        if not whole:
            if not EXCEPTION.match(text):
                break
            whole = line.rstrip()
        # rich goes to the next line only where the next word has no room; a longer word alone fills its lines.
        elif len(before) + 1 + len(text.split()[0]) > width:
            whole += b" " * (len(before) < width or " " in before) + line[len(prefix) :].rstrip()
            lines[place] = b""
        else:
            break
        before = text
    if whole:
        lines[at] = whole
