"""The lines of a requirements file, as pip and uv read them: what is checked is what is used. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from ...core.errors import UsageError

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_COMMENT = re.compile(r"(^|\s)#.*$")
# What ends a line for one reader and for another one does not, and what a terminal would act on.
_ODD = re.compile(r"[^\t\n\r\x20-\x7e\u00a0-\u2027\u202f-\U0010ffff]")
# Of one file, without and with empty ones and comments, and letters of one line: a lock has 5,000 lines, and 500 hashes
# of a package are 40 kB.
_MOST_LINES, _MOST_WITH_EMPTY, _LONGEST = 20_000, 200_000, 100_000
_VARIABLE = re.compile(r"\$\{[^}]*\}?")


def plain(content: bytes, path: str) -> bytes:
    """The file as UTF-8, each statement on the line where it begins, without comments.

    Raises UsageError for what is no text, for very much of it, and for a variable: uv would put in those of the shell.
    """
    text = _decoded(content, path).replace("\r\n", "\n").replace("\r", "\n")
    if text.count("\n") > _MOST_WITH_EMPTY:
        raise UsageError(
            f"{path}:{_MOST_WITH_EMPTY + 1}: more than {_MOST_WITH_EMPTY:,} lines", "put less into the file"
        )
    written = list[str]()
    begun, waiting, count = "", 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        if odd := _ODD.search(line):
            raise UsageError(f"{path}:{number}: a line has the character {odd[0]!a}", "save it as plain UTF-8 text")
        stripped = _COMMENT.sub("", line).strip()
        is_comment = line.lstrip().startswith("#")
        if stripped.endswith("\\") and not is_comment:
            begun, waiting = f"{begun}{stripped[:-1]} " if begun else f"{stripped[:-1]} ", waiting + 1
            continue
        whole = " ".join(f"{begun}{stripped}".split())
        count += bool(whole)
        if count > _MOST_LINES or len(whole) > _LONGEST:
            most = f"{_MOST_LINES:,} lines, or one of more than {_LONGEST:,} letters"
            raise UsageError(f"{path}:{number - waiting}: more than {most}", "put less into the file")
        if variable := _VARIABLE.search(whole):
            raise UsageError(
                f"{path}:{number - waiting}: {variable[0]}: Muster puts no variable of this shell into the file",
                "an index with a password: pip config set global.extra-index-url https://...",
            )
        written += [whole, *([""] * waiting)]
        begun, waiting = "", 0
    if begun:
        written.append(begun.strip())
    return "\n".join([*written, ""]).encode()


def lines(content: bytes) -> Iterator[tuple[int, str]]:
    """The lines of a requirements file with their numbers, without comments and blank ones."""
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        text = _COMMENT.sub("", line).strip().rstrip("\\").strip()
        if text:
            yield number, text


def _decoded(content: bytes, path: str) -> str:
    mark, name = next((each for each in _MARKS if content.startswith(each[0])), (b"", "utf-8"))
    try:
        return content.removeprefix(mark).decode(name)
    except UnicodeDecodeError as fault:
        raise UsageError(f"{path}: not UTF-8 text (byte {fault.start + len(mark)})", "save it as UTF-8") from fault
