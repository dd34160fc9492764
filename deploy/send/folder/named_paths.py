"""The paths in the script's folder, or in its home, that the last words of a failed script report as missing. Pure.

Each library has its own words for a missing file; `_MISSING` has the common ones. If a line reports a missing file
without its path, the path is looked for in the code lines above.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from .content import WORKSPACE

WORK, HOME = "work/", "home/"
_MISSING = re.compile(
    r"No such file|(?<!Module)NotFound|not found|(?:does not|doesn't) exist|errno[ =:]*2\b|os error 2\b"
    r"|(?:can(?:not|'t| not)|could(?:n't| not)|unable to|failed to) (?:find|open|locate|access|stat)\b"
    r"|is not a (?:local folder|directory|valid (?:file|path))|\bno (?:valid )?files? (?:found|in|match)"
    r"|Found (?:no|0) ",
    re.IGNORECASE,
)
# torch.save reports with these words that the folder to write to is missing.
_WRITES = "Parent directory"
# A dotted name with such an ending is an exception, not a file.
_EXCEPTIONS = ("Error", "Exception")
# An apostrophe after a letter is that of "couldn't".
_WORDS = re.compile(r"(?<!\w)'([^'\n]+)'|\"([^\"\n]+)\"|([^\s'\":,;()`<>{}|=]+)")
# A verdict indents the lines of a script by four spaces; torch puts the rank before them.
_SET_IN = re.compile(r"^(?: {4})?(?:\[rank\d+\]: ?)?")
_PATTERN = re.compile(r"(?:^|/)[^/]*[*?\[].*")
# The most words, characters in a word, and paths to look for on a host: the text comes from a host.
_MOST, _LONGEST, _MOST_ASKED = 200, 400, 100


def in_lines(words: str) -> list[str]:
    """The words in the lines that clearly report something missing."""
    return _in(filter(_misses, words.splitlines()))


def missing(words: str, run: str = "") -> list[str]:
    """The paths of the run that a script may miss.

    They are as in the run's folder on a host: `work/data/a.bin` and `home/b`. For a path with wildcards: the folder it
    is in. A single word may be any noun. `run`: the run's id.
    """
    lines = [_SET_IN.sub("", line) for line in words.splitlines()]
    # The first line also names the script; if the rank's own lines follow, they say the same without it.
    own = list(filter(_misses, lines[1:])) or list(filter(_misses, lines))
    named = _paths(_in(own), run)
    if own and not any(is_like(path) and not path.endswith(_EXCEPTIONS) for path in named):
        named += filter(is_like, _paths(_in(reversed(lines)), run))
    return list(dict.fromkeys(named))


def all_of(words: str, run: str = "") -> list[str]:
    """Those missing paths that are not just a single word: Muster looks for these on the hosts."""
    return list(filter(is_like, missing(words, run)))[:_MOST_ASKED]


def outside(words: str, run: str = "") -> list[str]:
    """The missing paths above the script's folder, relative to it: `../data/a.bin`."""
    seen = (os.path.relpath(_own(word, run) or f"{WORK}{word}", WORK) for word in in_lines(words))
    return [path for path in seen if path.startswith("../")]


def is_like(path: str) -> bool:
    """Whether it looks like a path, and not like a single word."""
    inside = path.removeprefix(WORK)
    return "/" in inside or bool(PurePosixPath(inside).suffix)


def _misses(line: str) -> bool:
    return bool(_MISSING.search(line)) and _WRITES not in line


def _in(lines: Iterable[str]) -> list[str]:
    matches = (next(filter(None, match.groups())) for line in lines for match in _WORDS.finditer(line))
    words = (word for _, word in zip(range(_MOST), matches, strict=False))
    return [word for word in words if len(word) <= _LONGEST and "\0" not in word]


def _paths(words: list[str], run: str) -> list[str]:
    # A sentence may end after a path, and a list may enclose it in brackets.
    forms = (form for word in words for form in (word, word.rstrip(".!?…"), word.strip("[]")))
    return list(dict.fromkeys(filter(None, (_of_run(_PATTERN.sub("", form), run) for form in forms))))


def _of_run(word: str, run: str) -> str:
    """The path in the run's folder that a word of a script refers to; empty if it refers to none."""
    if own := _own(word, run):
        path = _plain(own)
        return path if path.startswith((WORK, HOME)) else ""
    top = f"{WORKSPACE}/"
    inside = _plain(word[word.rindex(top) + len(top) :] if word.startswith("/") and top in word else word)
    return f"{WORK}{inside}" if inside else ""


def _own(word: str, run: str) -> str:
    """The part of a path below the run's folder; empty if the path is not in it."""
    # The run's folder as containers see it, and as hosts and this machine see it.
    tops = ["muster/run", *([f"runs/{run}"] if run else [])]
    own = re.match(rf"(?:.*/)?(?:{'|'.join(map(re.escape, tops))})/(?P<rest>.*)", word)
    return own["rest"].replace(f"sent{WORKSPACE}/", WORK, 1) if own else ""


def _plain(path: str) -> str:
    """A relative path that stays below its start, without detours; empty if it is not such a path."""
    path = os.path.normpath(path)
    return "" if path == "." or path.startswith(("/", "..")) else PurePosixPath(path).as_posix()
