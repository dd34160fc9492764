"""The paths of a script's folder, or of its home, that its last words say it misses. Pure.

Each library has its own words for a missing file; those of `_MISSING` are in wide use. A line that misses a file and
names none is about the code above it.
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
# So torch.save misses the folder that it would write to.
_WRITES = "Parent directory"
# A dotted name with such an end is not a file.
_EXCEPTIONS = ("Error", "Exception")
# An apostrophe behind a letter is that of "couldn't".
_WORDS = re.compile(r"(?<!\w)'([^'\n]+)'|\"([^\"\n]+)\"|([^\s'\":,;()`<>{}|=]+)")
# A verdict sets the lines of a script in by four blanks; torch marks whose they are.
_SET_IN = re.compile(r"^(?: {4})?(?:\[rank\d+\]: ?)?")
_PATTERN = re.compile(r"(?:^|/)[^/]*[*?\[].*")
# Words, letters of one, and paths that a host is asked for: a host chooses the text.
_MOST, _LONGEST, _MOST_ASKED = 200, 400, 100


def in_lines(words: str) -> list[str]:
    """The words of the lines that plainly miss something."""
    return _in(filter(_misses, words.splitlines()))


def missing(words: str, run: str = "") -> list[str]:
    """What may be a path of the run that a script misses: `work/data/a.bin` and `home/b`, as the run's folder on a host
    has them; of wildcards, their folder. A bare word may be any noun. `run`: its id."""
    lines = [_SET_IN.sub("", line) for line in words.splitlines()]
    # The first line names the script as well; where the rank's own lines follow, they say the same without it.
    own = list(filter(_misses, lines[1:])) or list(filter(_misses, lines))
    named = _paths(_in(own), run)
    if own and not any(is_like(path) and not path.endswith(_EXCEPTIONS) for path in named):
        named += filter(is_like, _paths(_in(reversed(lines)), run))
    return list(dict.fromkeys(named))


def all_of(words: str, run: str = "") -> list[str]:
    """Those that are no bare words: what to look for on the hosts."""
    return list(filter(is_like, missing(words, run)))[:_MOST_ASKED]


def outside(words: str, run: str = "") -> list[str]:
    """Those above the script's folder, as seen from it: `../data/a.bin`."""
    seen = (os.path.relpath(_own(word, run) or f"{WORK}{word}", WORK) for word in in_lines(words))
    return [path for path in seen if path.startswith("../")]


def is_like(path: str) -> bool:
    """Whether it looks like a path, and not like a bare word."""
    inside = path.removeprefix(WORK)
    return "/" in inside or bool(PurePosixPath(inside).suffix)


def _misses(line: str) -> bool:
    return bool(_MISSING.search(line)) and _WRITES not in line


def _in(lines: Iterable[str]) -> list[str]:
    matches = (next(filter(None, match.groups())) for line in lines for match in _WORDS.finditer(line))
    words = (word for _, word in zip(range(_MOST), matches, strict=False))
    return [word for word in words if len(word) <= _LONGEST and "\0" not in word]


def _paths(words: list[str], run: str) -> list[str]:
    # A sentence may end behind a path, and a list may stand around it.
    forms = (form for word in words for form in (word, word.rstrip(".!?…"), word.strip("[]")))
    return list(dict.fromkeys(filter(None, (_of_run(_PATTERN.sub("", form), run) for form in forms))))


def _of_run(word: str, run: str) -> str:
    """The path in the run's folder that a word of a script means; empty if it means none."""
    if own := _own(word, run):
        path = _plain(own)
        return path if path.startswith((WORK, HOME)) else ""
    top = f"{WORKSPACE}/"
    inside = _plain(word[word.rindex(top) + len(top) :] if word.startswith("/") and top in word else word)
    return f"{WORK}{inside}" if inside else ""


def _own(word: str, run: str) -> str:
    """What of a path lies below the run's folder; empty if it does not."""
    # As a container has them, a host, and this machine.
    tops = ["muster/run", *([f"runs/{run}"] if run else [])]
    own = re.match(rf"(?:.*/)?(?:{'|'.join(map(re.escape, tops))})/(?P<rest>.*)", word)
    return own["rest"].replace(f"sent{WORKSPACE}/", WORK, 1) if own else ""


def _plain(path: str) -> str:
    """A relative path below where it starts, without detours; empty if it is not such a path."""
    path = os.path.normpath(path)
    return "" if path == "." or path.startswith(("/", "..")) else PurePosixPath(path).as_posix()
