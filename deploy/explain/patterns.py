"""Patterns for lines of anybody: none of them repeats anything without an end. Pure.

A pattern with two endless repeats (`max\\w*time\\w*exceeded`) takes seconds for one long line that almost fits, and
whoever writes the line chooses it. So every pattern of this package is made here.
"""

from __future__ import annotations

import re

# A line is cut to this many characters: no error needs more.
LONGEST = 4096
# How often a part of a pattern is repeated at most: any character, or a group, along the whole line.
_MOST, _MOST_ELSE, _ANY = 100, 400, (".", ")")
# A character, an escape or a class, and the endless repeat behind it.
_PART = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\])([*+])?", re.DOTALL)


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The pattern, in which every `*` and `+` has an end."""
    return re.compile(bounded(pattern), flags)


def bounded(pattern: str) -> str:
    """The pattern in which `\\w*` is `\\w{0,100}`, and so on."""
    return _PART.sub(_ended, pattern)


def _ended(match: re.Match[str]) -> str:
    part, repeat = match.groups()
    if not repeat or part == "}":  # `{2,3}+` has an end
        return match[0]
    most = LONGEST if part in _ANY else _MOST_ELSE if part == "\\S" or part.startswith("[^") else _MOST
    return f"{part}{{{int(repeat == '+')},{most}}}"
