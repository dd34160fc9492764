"""Split a log line into the program's own text and, from launchers' prefixes, its rank, host and time. Pure.

Prefixes can be nested (`worker-1  | [rank3]: ...`), so they are removed one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from .words import LONGEST, compile_limited

_LAYERS = 6
# Longer lines are not cached: they would take a hundred MB.
REMEMBERED = 300
_COLOURS = compile_limited(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])|\[\d{1,3}(?:;\d{1,3}){0,4}m"
)
_DATE = r"(?:(?P<year>\d{4})[-/])?(?P<month>\d\d)[-/](?P<day>\d\d)"
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:[.,]\d{1,9})?)"
# Seconds of a year as time_of counts them: with 31 days in each month.
YEAR = 12 * 31 * 24 * 3600
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIMES = (
    compile_limited(rf"{_DATE}[T_ ]{_CLOCK}"),
    compile_limited(rf"(?:^|[\[ ])[EWIF](?P<month>\d\d?)(?P<day>\d\d) {_CLOCK}"),
    compile_limited(rf"(?P<name>{'|'.join(_MONTHS)}) +(?P<day>\d\d?) {_CLOCK}"),
)
# who: a node or a container. rank: a rank; local: a local rank; task: a task of srun. The whole match is removed.
_PREFIXES = (
    compile_limited(rf"[\[(]?{_DATE}[T_ ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?[\])]?(?: (?:stdout|stderr) [FP])?[ \t:|-]*"),
    compile_limited(rf"(?:{'|'.join(_MONTHS)}) +\d\d? \d\d:\d\d:\d\d (?P<who>[\w.-]+) [\w./@-]+(?:\[\d+\])?: "),
    compile_limited(r"\[pod/(?P<who>[\w.-]+)/[\w.-]+\] "),
    compile_limited(r"(?P<who>[A-Za-z0-9][\w.-]{0,62})\s*\| ?"),
    compile_limited(r"\(\w* ?pid=\d+(?:, ip=(?P<who>[\d.]+))?\) ?"),
    compile_limited(r"\[(?:rank|Rank )(?P<rank>\d+)\]: ?"),
    compile_limited(r"\[\d+,(?:mpirank:)?(?P<rank>\d+)(?:,(?P<who>[\w.-]+))?\](?:<\w+>)?: ?"),
    compile_limited(rf"\w{{3}} (?:{'|'.join(_MONTHS)}) +\d\d? [\d:]{{8}} \d{{4}}\[(?P<rank>\d+)\]<\w+>: ?"),
    compile_limited(r"(?P<who>[A-Za-z][\w.-]*/\d+) (?=\[)"),
    compile_limited(r"\[(?P<rank>\d+)\]<std\w+>: ?"),
    compile_limited(r"\[(?P<local>(?:default|[a-z]\w*_worker)?\d+)\]: ?"),
    compile_limited(r" {0,4}(?P<task>\d{1,5}) ?: "),
    compile_limited(r"(?P<who>[\w.-]+):\d+:\d+ \[\d+\] (?=.*NCCL|[\w/]+\.cc)"),
    compile_limited(r"(?P<who>(?=[\w.-]*\d)(?!E[A-Z]?\d{4}:)[A-Za-z0-9][\w.-]*(?<!\.py)(?<!Error)): (?!error)"),
    compile_limited(
        r"(?P<who>[a-z0-9][a-z0-9.-]*-(?:\d{1,3}|[a-z0-9]{5})) [a-z][a-z0-9-]* "
        r"(?=[A-Z\[(]|  |/|[a-z_.]{1,80}\.[A-Z]\w*: )"
    ),
    compile_limited(r"\[(?P<who>[A-Za-z][\w.@-]*)\] (?:out|err): "),
    compile_limited(r"\[(?P<who>(?=[\w.@-]*\d)[A-Za-z][\w.@-]*)\]:? "),
    compile_limited(r"(?:\S+ )?\[?(?:stderr|stdout)\]?:? |\[INFO\] "),
    compile_limited(r"[EWIF]\d{4} [\d:.]+ +(?:\d+ )*[^\s\]]+:\d+\] ?"),
    compile_limited(r"(?:ERROR|CRITICAL|FATAL)(?::[\w.]+:| +(?:[^\s\]]+ )*[^\s\]]+:\d+\]) ?"),
)


# The first line of a traceback or of one of its frames, after a prefix that no row above knows.
_IN_TRACEBACK = compile_limited(r"(.{1,80}?)(?:Traceback \(most recent call last\):|  File \"[^\"]{1,300}\", line \d)")
_NO_PREFIX = compile_limited(r"Error|Exception|\w\.\w+\.\w")
_RANK_IN = compile_limited(r"(?i)rank[ _:=-]?(\d{1,6})\b")


@dataclass(frozen=True)
class LogLine:
    """One line. whole: its text without colours; text: also without prefixes; who, rank: from these prefixes."""

    whole: str
    text: str
    who: str = ""
    rank: str = ""


def split_line(line: str) -> LogLine:
    """Split a line into text and prefixes, and remove its colours; only LONGEST characters of it are read."""
    return (_undressed if len(line) <= REMEMBERED else _undressed.__wrapped__)(line)


@lru_cache(maxsize=2048)  # hosts of one run print the same lines
def _undressed(line: str) -> LogLine:
    whole = _COLOURS.sub("", line[:LONGEST]).rstrip()
    text, who, rank = whole, "", ""
    for _ in range(_LAYERS):
        taken = next((match for prefix in _PREFIXES if (match := prefix.match(text)) and match.end()), None)
        if taken is None:
            break
        groups = taken.groupdict()
        who = who or groups.get("who") or ""
        rank = _rank(groups) or rank
        text = text[taken.end() :]
    return LogLine(whole, text, who, rank)


def prefix_of(text: str) -> re.Pattern[str] | None:
    """A pattern for the prefix that a launcher puts before the lines of a traceback; None if this line has none."""
    match = _IN_TRACEBACK.match(text)
    words = match[1].rstrip() if match else ""
    if not words or _NO_PREFIX.search(words):
        return None
    return compile_limited(re.sub(r"\d+", r"\\d+", re.escape(words)) + " ?")


def without_prefix(part: LogLine, prefixes: Iterable[re.Pattern[str]]) -> LogLine:
    """The line without a prefix: the first of these that it has is removed."""
    for prefix in prefixes:
        match = prefix.match(part.text)
        if match:
            rank = _RANK_IN.search(match[0])
            return replace(part, text=part.text[match.end() :], rank=f"rank {rank[1]}" if rank else part.rank)
    return part


def time_of(line: str) -> float | None:
    """The time of a line in seconds within its year, whose months all have 31 days; None if the line has no time.

    Logs rarely have the time zone, and glog not even the year.
    """
    for pattern in _TIMES:
        match = pattern.search(line[:LONGEST])
        if match:
            parts = match.groupdict()
            month = _MONTHS.index(parts["name"]) + 1 if parts.get("name") else int(parts["month"])
            days = month * 31 + int(parts["day"])
            second = float(parts["second"].replace(",", "."))
            return ((days * 24 + int(parts["hour"])) * 60 + int(parts["minute"])) * 60 + second
    return None


def in_order(timed: Iterable[Any]) -> Callable[[Any], tuple[bool, float]]:
    """A sort key by `time`; items without one come last. Times lack a year: each is within half a year of the first."""
    middle = next((each.time for each in timed if each.time is not None), 0.0)
    return lambda each: (each.time is None, ((each.time or 0.0) - middle + YEAR / 2) % YEAR)


def _rank(groups: dict[str, str | None]) -> str:
    if groups.get("rank"):
        return f"rank {groups['rank']}"
    if groups.get("local"):
        digits = re.sub(r"\D", "", groups["local"] or "")
        return f"local rank {digits}"
    return f"task {groups['task']}" if groups.get("task") else ""
