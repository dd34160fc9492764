"""Rules that select files: the lines of a .gitignore or a .dockerignore, as git and Docker read them. Pure.

Somebody else may have written them. So each line becomes a regular expression that never backtracks: its pieces are
atomic, and the first place where a piece fits is the best one (the argument for greedy globbing).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ...core.errors import DeployError

MOST_TEXT, MOST_PATTERNS = 1 << 20, 2000
_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": "\\s", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip
_NEVER = "(?!)"
_WILD, _ANY_NUMBER = re.compile(r"[*?\[\\]"), re.compile(r"\*\*+")


@dataclass(frozen=True)
class Pattern:
    """One line of an ignore file.

    `expression`: matches a path below the folder with the rules, or only a name (`is_name`).
    `folders_only`: it matches only folders. `takes_back`: it starts with `!`, and so includes paths again.
    `parts`: the parts of the line as it was written. `is_plain`: it has no wildcard.
    """

    expression: str
    is_name: bool
    folders_only: bool
    takes_back: bool
    parts: tuple[str, ...]

    @cached_property
    def is_plain(self) -> bool:
        """Whether it is the exact name or path of one thing."""
        return not any(_WILD.search(part) for part in self.parts)

    @cached_property
    def matches(self) -> re.Pattern[str]:
        """The compiled expression."""
        return re.compile(self.expression, re.DOTALL)


class Rules:
    """The lines of one file, in order: the last line that matches decides."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = patterns
        self._plain: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
        self._wild = list[int]()
        for number, pattern in enumerate(patterns):
            if pattern.is_plain:
                self._plain[pattern.is_name].setdefault("/".join(pattern.parts), []).append(number)
            else:
                self._wild.append(number)

    def decides(self, path: str, is_folder: bool) -> int:
        """The number of the line that decides for a path; -1 if none does."""
        name, last = path.rpartition("/")[2], -1
        for numbers in (self._plain[True].get(name, ()), self._plain[False].get(path, ())):
            fitting = (at for at in reversed(numbers) if is_folder or not self.patterns[at].folders_only)
            last = max(last, next(fitting, -1))
        if self._any[True].match(name) or self._any[False].match(path):
            for number in reversed(self._wild):
                pattern = self.patterns[number]
                if number < last:
                    break
                if (is_folder or not pattern.folders_only) and pattern.matches.match(name if pattern.is_name else path):
                    return number
        return last

    @cached_property
    def _any(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Two expressions that match every path, and every name, that some pattern with wildcards matches."""
        wild = [self.patterns[number] for number in self._wild]
        each = ([p.expression for p in wild if p.is_name is is_name] or [_NEVER] for is_name in (False, True))
        paths, names = (re.compile("|".join(f"(?:{word})" for word in words), re.DOTALL) for words in each)
        return paths, names


def of_git(text: str, where: str) -> Rules:
    """The rules of a .gitignore. `where`: its name in messages. Raises DeployError if it has too many patterns."""
    return Rules(_bounded((made for line in text.split("\n") if (made := _of_git(line))), where))


def of_docker(lines: Sequence[str], where: str) -> Rules:
    """The rules in a .dockerignore's lines. Raises as `of_git`."""
    return Rules(_bounded((made for line in lines if (made := _of_docker(line))), where))


def may_match_below(rules: Rules, path: str) -> bool:
    """Whether a line that includes paths again (`!a/b*/c`) may match something inside the folder `path`."""
    own = path.split("/")
    for pattern in rules.patterns:
        if pattern.takes_back:
            deep = [at for at, part in enumerate(pattern.parts) if _ANY_NUMBER.fullmatch(part)]
            sure = deep[0] if deep else len(pattern.parts) - 1
            if deep or len(own) <= sure:
                both = min(len(own), sure)
                if _head(pattern.parts[:both]).match("/".join(own[:both])):
                    return True
    return False


@lru_cache(maxsize=4 * MOST_PATTERNS)
def _head(parts: Sequence[str]) -> re.Pattern[str]:
    return re.compile(_path(parts), re.DOTALL)


def _bounded(patterns: Iterator[Pattern], where: str) -> list[Pattern]:
    made, wild = list[Pattern](), 0
    for pattern in patterns:
        wild += not pattern.is_plain or pattern.takes_back
        if wild > MOST_PATTERNS:
            raise DeployError(f"{where}: more than {MOST_PATTERNS} lines with wildcards or `!`", "list folders instead")
        made.append(pattern)
    return made


def _of_git(line: str) -> Pattern | None:
    line = line.removesuffix("\r")
    if line.startswith("#"):
        return None
    # Spaces at the end do not count, unless a backslash precedes them.
    while line.endswith(" ") and (len(line[:-1]) - len(line[:-1].rstrip("\\"))) % 2 == 0:
        line = line[:-1]
    takes_back = line.startswith("!")
    line = line[takes_back:]
    folders_only = line.endswith("/")
    line = line[: -1 if folders_only else None]
    if not line:
        return None
    if "/" not in line:
        return Pattern(f"{_part(line)}\\Z", True, folders_only, takes_back, (line,))
    parts = tuple(line.removeprefix("/").split("/"))
    return Pattern(_path(parts), False, folders_only, takes_back, parts)


def _of_docker(line: str) -> Pattern | None:
    takes_back = line.startswith("!")
    parts = list[str]()
    for part in line[takes_back:].strip().split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    if not parts:
        return None
    return Pattern(_path(parts), False, False, takes_back, tuple(parts))


def _path(parts: Sequence[str]) -> str:
    """The expression for a path of these parts, where `**` stands for any number of parts."""
    groups: list[list[str]] = [[]]
    for part in parts:
        if _ANY_NUMBER.fullmatch(part):
            if groups[-1] or len(groups) == 1:
                groups.append([])
        else:
            groups[-1].append(part)
    first, *others = groups
    if not others:
        return "/".join(map(_part, first)) + r"\Z"
    text = "".join(f"{_part(part)}/" for part in first)
    for group in others[:-1]:
        text += "(?>(?:[^/]*/)*?" + "".join(f"{_part(part)}/" for part in group) + ")"
    last = "/".join(map(_part, others[-1]))
    return text + (rf"(?:[^/]*/)*?{last}\Z" if last else r".+\Z")


def _part(glob: str) -> str:
    """The expression for one name. A slash or the end must follow it directly."""
    pieces = [""]
    at = 0
    while at < len(glob):
        letter = glob[at]
        at += 1
        if letter == "*":
            if len(pieces) == 1 or pieces[-1]:
                pieces.append("")
        elif letter == "?":
            pieces[-1] += "[^/]"
        elif letter == "[":
            made, at = _set(glob, at)
            pieces[-1] += made
        elif letter == "\\":
            if at == len(glob):
                return _NEVER
            pieces[-1] += re.escape(glob[at])
            at += 1
        else:
            pieces[-1] += re.escape(letter)
    first, *others = pieces
    if not others:
        return first
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1])
    return rf"{first}{middle}(?>[^/]*{others[-1]}(?=/|\Z))"


def _set(glob: str, at: int) -> tuple[str, int]:
    """The expression for a `[...]` whose bracket is already open, and the position after it."""
    is_not = glob[at : at + 1] in ("!", "^")
    at += is_not
    start, items = at, ""
    while at < len(glob):
        if glob[at] == "]" and at > start:
            return (f"(?!/)[{'^' if is_not else ''}{items}]" if items else "[^/]" if is_not else _NEVER), at + 1
        if glob.startswith("[:", at):
            end = glob.find(":]", at)
            if end < 0:
                return _NEVER, len(glob)
            if (named := _CLASSES.get(glob[at + 2 : end])) is None:
                return _NEVER, len(glob)
            items, at = items + named, end + 2
            continue
        low, at = _letter(glob, at)
        if glob[at : at + 1] == "-" and glob[at + 1 : at + 2] not in ("", "]"):
            high, at = _letter(glob, at + 1)
            items += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
        else:
            items += re.escape(low)
    return _NEVER, len(glob)


def _letter(glob: str, at: int) -> tuple[str, int]:
    at += glob[at] == "\\" and at + 1 < len(glob)
    return glob[at], at + 1
