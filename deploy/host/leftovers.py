"""What Muster keeps on a host (runs, images, folders, data, packages, caches), and what a user wants removed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..core import fields
from ..core.errors import BadAnswer, UsageError
from ..core.fields import digits
from ..engine.engine import Stored
from ..job.options import FLAG
from .status import parse_time

KINDS = ("runs", "images", "folders", "data", "packages", "caches", "elsewhere")
_SECONDS, _KILOBYTES = digits(1 << 40), digits(1 << 50)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:/-]{0,254}")
_AGE = re.compile(r"([1-9][0-9]{0,4})([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True)
class Leftover:
    """One item on a host. `age_s`, `bytes`: None if unknown. `used`: a container uses it."""

    kind: str
    name: str
    age_s: int | None
    bytes: int | None
    used: bool


@dataclass(frozen=True)
class Selection:
    """What a user wants removed: runs by id and data by digest (`all`: every one), and whole kinds.

    `older_s`: the least age in seconds; younger items stay.
    """

    runs: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset()
    older_s: int = 0
    data: tuple[str, ...] = ()

    @property
    def has_any(self) -> bool:
        """Whether the user asked for anything to be removed."""
        return bool(self.runs or self.kinds or self.data)

    def wants(self, thing: Leftover) -> bool:
        """Whether the user wants this item removed, apart from its age."""
        named = {"runs": self.runs, "data": self.data}.get(thing.kind, ())
        return thing.kind in self.kinds or thing.name in named or "all" in named


class InUse(NamedTuple):
    """What containers use: the runs that are running, and for each container the digests of its folders."""

    runs: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    def uses(self, kind: str, name: str) -> bool:
        """Whether a container uses this run, cache or folder. A running run may use any cache."""
        if kind in ("folders", "data"):
            return any(name.removeprefix("coming.") in words for words in self.folders)
        return name in self.runs if kind == "runs" else kind == "caches" and bool(self.runs)


def parse(output: str, in_use: InUse, images: Iterable[Stored] = (), volumes: Iterable[Stored] = ()) -> list[Leftover]:
    """Read the answer of clean-list, and pick ours from what the engine stores. Raises BadAnswer."""
    rows = fields.rows(output)
    now, user = _SECONDS(fields.first(rows, "now"), "the time there"), fields.first(rows, "user")
    things = [
        _leftover(kind, line, now, in_use)
        for kind in ("runs", "caches", "folders", "data", "elsewhere")
        for line in rows.get(kind, ())
    ]

    def add(kind: str, seen: Stored, made: str) -> None:
        changed = parse_time(made)
        age_s = None if changed is None else max(0, now - int(changed))
        if _is_name(seen.name):
            things.append(Leftover(kind, seen.name, age_s, seen.size, seen.used))

    for seen in volumes:
        if seen.labels.get("muster.user") == user and seen.labels.keys() & {"muster.packages", "muster.cache"}:
            add("caches" if seen.name.startswith("muster-cache-") else "packages", seen, seen.made)
    pushed = dict(line.partition(" ")[::2] for line in rows.get("pushed", ()))
    for seen in images:
        if seen.name in pushed and "muster.image" in seen.labels:
            add("images", seen, pushed[seen.name])
    return things


def mark_shared_runs(by_host: Mapping[str, Sequence[Leftover]]) -> dict[str, list[Leftover]]:
    """Mark a run as used on all hosts if it is running on one of them: the hosts may share a home."""
    going = {thing.name for things in by_host.values() for thing in things if thing.kind == "runs" and thing.used}
    return {
        host: [replace(thing, used=thing.used or (thing.kind == "runs" and thing.name in going)) for thing in things]
        for host, things in by_host.items()
    }


def parse_age(text: str) -> int:
    """Read an age such as `30d` as seconds. Raises UsageError."""
    match = _AGE.fullmatch(text)
    if not match:
        raise UsageError(f"{FLAG.older} {text}: not an age", f"{FLAG.older} 30d or {FLAG.older} 12h")
    return int(match[1]) * _UNITS[match[2]]


def chosen(leftovers: Iterable[Leftover], wanted: Selection) -> tuple[list[Leftover], list[Leftover]]:
    """Return what to remove, and what is also wanted but stays because a container uses it.

    An item of unknown age is never old enough.
    """
    named = [
        thing
        for thing in leftovers
        if wanted.wants(thing) and (not wanted.older_s or (thing.age_s is not None and thing.age_s >= wanted.older_s))
    ]
    return [thing for thing in named if not thing.used], [thing for thing in named if thing.used]


def unknown(by_host: Mapping[str, Iterable[Leftover]], wanted: Selection) -> list[tuple[str, str]]:
    """The runs and the data that the user asked for and no host has: kind and name."""
    present = {(thing.kind, thing.name) for things in by_host.values() for thing in things}
    named = [("runs", run) for run in wanted.runs] + [("data", digest) for digest in wanted.data]
    return [each for each in named if each[1] != "all" and each not in present]


def _leftover(kind: str, line: str, now: int, in_use: InUse) -> Leftover:
    name, _, rest = line.partition(" ")
    changed, _, size = rest.partition(" ")
    if not _is_name(name):
        raise BadAnswer("what is kept", "a name", line[:200])
    seconds, kilobytes = _SECONDS(changed, "a time"), _KILOBYTES(size or "0", "a size")
    age_s = max(0, now - seconds) if seconds else None
    return Leftover(kind, name, age_s, kilobytes << 10 or None, in_use.uses(kind, name))


def _is_name(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and ".." not in name
