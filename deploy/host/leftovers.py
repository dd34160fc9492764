"""What Muster keeps on a host (runs, images, folders, packages, caches), and what a user wants removed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..core.errors import BadAnswer, UsageError
from ..core.fields import digits
from ..job.options import FLAG

KINDS = ("runs", "images", "folders", "packages", "caches")
_SECONDS, _KILOBYTES = digits(0, 1 << 40), digits(0, 1 << 50)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:/-]{0,254}")
_AGE = re.compile(r"([1-9][0-9]{0,4})([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True)
class Leftover:
    """One thing on a host. `age_s`, `bytes`: None where they are unknown. `used`: a container has it."""

    kind: str
    name: str
    age_s: int | None
    bytes: int | None
    used: bool


@dataclass(frozen=True)
class Selection:
    """What a user wants removed: runs by id (`all`: every one), whole kinds, and nothing younger than `older_s`."""

    runs: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()
    older_s: int = 0

    @property
    def anything(self) -> bool:
        """Whether the user named something."""
        return bool(self.runs or self.kinds)


def parse(output: str) -> list[Leftover]:
    """Read the answer to `commands.clean_list`. Raises BadAnswer."""
    first, *lines = [line for line in output.split("\n") if line] or [""]
    word, _, number = first.partition(" ")
    if word != "now":
        raise BadAnswer("what is kept", "`now SECONDS`", first[:200])
    now = _SECONDS(number, "the time there")
    return [_leftover(line, now) for line in lines]


def age(text: str) -> int:
    """`30d` in seconds. Raises UsageError."""
    match = _AGE.fullmatch(text)
    if not match:
        raise UsageError(f"{FLAG.older} {text}: not an age", f"{FLAG.older} 30d or {FLAG.older} 12h")
    return int(match[1]) * _UNITS[match[2]]


def chosen(leftovers: Iterable[Leftover], wanted: Selection) -> tuple[list[Leftover], list[Leftover]]:
    """What to remove, and what is wanted too but stays because a container has it.

    What has no known age is never old enough.
    """
    named = [
        thing
        for thing in leftovers
        if (thing.kind in wanted.kinds or (thing.kind == "runs" and ({thing.name, "all"} & set(wanted.runs))))
        and (not wanted.older_s or (thing.age_s is not None and thing.age_s >= wanted.older_s))
    ]
    return [thing for thing in named if not thing.used], [thing for thing in named if thing.used]


def unknown_runs(by_host: Mapping[str, Iterable[Leftover]], wanted: Selection) -> list[str]:
    """The runs that the user named and no host has."""
    runs = {thing.name for things in by_host.values() for thing in things if thing.kind == "runs"}
    return [run for run in wanted.runs if run != "all" and run not in runs]


def _leftover(line: str, now: int) -> Leftover:
    cells = line.split(" ")
    if len(cells) != 5 or cells[0] not in KINDS or not _NAME.fullmatch(cells[1]) or ".." in cells[1]:
        raise BadAnswer("what is kept", "`KIND NAME SECONDS KILOBYTES USED`", line[:200])
    kind, name, changed, size, used = cells
    seconds, kilobytes = _SECONDS(changed, "a time"), _KILOBYTES(size or "0", "a size")
    return Leftover(kind, name, max(0, now - seconds) if seconds else None, kilobytes << 10 or None, used != "free")
