"""The paths in the last words of a script: of its folder, or of its home. Pure.

Each library has its own words for a missing file, so a sentence decides little here. A line that plainly misses a file
makes its words sure. Any other word that looks like a path is only a maybe: the caller must know that the file is not
there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from .content import WORKSPACE

WORK, HOME = "work/", "home/"
_MISSING = re.compile(
    r"No such file|(?<!Module)NotFound|not found|(?:does not|doesn't) exist|errno[ =:]*2\b|os error 2\b"
    r"|(?:can(?:not|'t| not)|could(?:n't| not)|unable to|failed to) (?:find|open|locate|access|stat)\b",
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
_PATTERN = re.compile(r"[*?\[]")
# Words, letters of one, and paths that a host is asked for: a host chooses the text.
_MOST, _LONGEST, _MOST_ASKED = 200, 400, 100


def in_lines(words: str) -> list[str]:
    """The words of the lines that plainly miss something."""
    return _in(line for line in words.splitlines() if _misses(line))


def sure(words: str, run: str = "") -> dict[str, bool]:
    """What may be a path of the run in the lines that miss a file: `work/data/a.bin` and `home/b`, as the run's folder
    on a host has them; and whether it looks like a path, for a bare word may be any noun. `run`: its id."""
    return _paths(in_lines(words), run)


def maybe(words: str, run: str = "") -> list[str]:
    """What looks like a path of the run, where no line both misses a file and names one.

    If a line misses something that it does not name, the traceback above it may. Otherwise the lines of code say
    nothing: they name what the script writes as well.
    """
    lines = [_SET_IN.sub("", line) for line in words.splitlines()]
    missing = [line for line in lines if _misses(line)]
    # The first line names the script as well; where the rank's own lines follow, they say the same without it.
    own = [line for line in lines[1:] if _misses(line)] or missing
    named = _paths(_in(iter(own)), run)
    if any(is_like and not path.endswith(_EXCEPTIONS) for path, is_like in named.items()):
        return []
    searched = lines if missing else [line for line in lines if not line.startswith(" ") and _WRITES not in line]
    return [path for path, is_like in _paths(_in(reversed(searched)), run).items() if is_like]


def all_of(words: str, run: str = "") -> list[str]:
    """Both, without bare words, the sure ones first: what to look for on the hosts. Of wildcards, their folder."""
    plain = [path for path, is_like in sure(words, run).items() if is_like]
    return [*dict.fromkeys(within(path)[0] for path in [*plain, *maybe(words, run)])][:_MOST_ASKED]


def within(path: str) -> tuple[str, str]:
    """The folder that a path with wildcards is about, and its pattern below that; a plain path, and no pattern."""
    parts = path.split("/")
    first = next((at for at, part in enumerate(parts) if _PATTERN.search(part)), len(parts))
    return "/".join(parts[:first]), "/".join(parts[first:])


def _misses(line: str) -> bool:
    return bool(_MISSING.search(line)) and _WRITES not in line


def _in(lines: Iterator[str]) -> list[str]:
    matches = (next(filter(None, match.groups())) for line in lines for match in _WORDS.finditer(line))
    return [word for _, word in zip(range(_MOST), matches, strict=False)]


def _paths(words: list[str], run: str) -> dict[str, bool]:
    paths: dict[str, bool] = {}
    for word in words:
        is_like = "/" in word or bool(PurePosixPath(word).suffix)
        # A sentence may end behind a path, and a list may stand around it.
        for form in (word, word.rstrip(".!?…"), word.strip("[]")):
            if path := _of_run(form, run):
                paths[path] = paths.get(path, False) or is_like
    return paths


def _of_run(word: str, run: str) -> str:
    """The path in the run's folder that a word of a script means; empty if it means none."""
    if len(word) > _LONGEST or "\0" in word:
        return ""
    # As a container has them, a host, and this machine.
    tops = ["muster/run", *([f"runs/{run}"] if run else [])]
    own = re.match(rf"(?:.*/)?(?:{'|'.join(map(re.escape, tops))})/(?P<rest>.*)", word)
    if own:
        rest = own["rest"].replace(f"sent{WORKSPACE}/", WORK, 1)
        path = _plain(rest)
        return path if path.startswith((WORK, HOME)) else ""
    top = f"{WORKSPACE}/"
    inside = _plain(word[word.rindex(top) + len(top) :] if word.startswith("/") and top in word else word)
    return f"{WORK}{inside}" if inside else ""


def _plain(path: str) -> str:
    """A relative path below where it starts, without detours; empty if it is not such a path."""
    path = os.path.normpath(path)
    return "" if path == "." or path.startswith(("/", "..")) else PurePosixPath(path).as_posix()
