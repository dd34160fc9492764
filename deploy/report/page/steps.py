"""Where the time of a step went, and which rank the others wait for. Pure.

Flow: step events by rank -> means, stragglers -> bars, areas over time and one sentence -> templates/steps.html.

The rule: all ranks of a data-parallel step end together, so a slow rank shows as the one that does not wait. A rank is
a straggler when its mean wait is less than half the median wait of the other ranks, and shorter by at least a tenth
of a step. Under FEWEST_STEPS steps, told in FEWEST_REPORTS reports, nobody is called one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from ...core.text import several
from . import units as words
from .charts import Chart, Drawing, Series, draw
from .data import StepTime

PARTS = ("data", "compute", "wait")
NAMES = {"data": "data", "compute": "compute", "wait": "waiting"}
# The watcher of a script sees data and waiting; `compute` is the rest.
SCRIPT_NAMES = {**NAMES, "compute": "forward, backward, rest"}
WAIT_UNKNOWN = "How long a rank waits for the others is not known: the time is part of the backward pass."
BARS = 32
OVER_TIME = 6
FEWEST_STEPS, FEWEST_REPORTS = 20, 3
SLICES = 80


@dataclass(frozen=True)
class Mean:
    """Mean milliseconds a step, on one rank, over the whole run."""

    rank: int
    node: str
    data: float
    compute: float
    wait: float
    whole: float


@dataclass(frozen=True)
class Piece:
    """A part of a bar; its width is a share of the longest bar."""

    part: str
    width: str
    title: str


@dataclass(frozen=True)
class Bar:
    """One rank's mean step."""

    rank: int
    node: str
    straggler: bool
    pieces: list[Piece]
    cells: list[str]


@dataclass(frozen=True)
class StepsSection:
    """All of templates/steps.html. Bars and charts may be fewer than the ranks."""

    verdict: str
    ranks: int
    bars: list[Bar]
    charts: list[Drawing]
    names: Mapping[str, str] = field(default_factory=lambda: NAMES)
    note: str = ""


def mean(rank: int, node: str, times: list[StepTime]) -> Mean:
    """The mean over all steps, each line counting as many steps as it covers. `times` is not empty."""
    weight = sum(time.count for time in times)
    data, compute, wait, whole = (
        sum(getattr(time, part) * time.count for time in times) / weight for part in (*PARTS, "whole")
    )
    return Mean(rank, node, data, compute, wait, whole)


def stragglers(means: list[Mean]) -> list[Mean]:
    """The ranks the others wait for, by the rule above; empty for fewer than two ranks."""
    slow = []
    for rank in means:
        others = [other.wait for other in means if other is not rank]
        if others and rank.wait < median(others) / 2 and median(others) - rank.wait >= rank.whole / 10:
            slow.append(rank)
    return slow


def verdict(means: list[Mean]) -> str:
    """One sentence: who the straggler is, what it is slow at, and what that costs the others."""
    slow = stragglers(means)
    if not slow:
        return "No straggler: " + (
            "one rank waits for no other." if len(means) < 2 else "the ranks wait about as long as each other."
        )
    rest = [rank for rank in means if rank not in slow]
    usual_wait = median(rank.wait for rank in rest)
    first = min(slow, key=lambda rank: rank.wait)
    usual = {part: median(getattr(rank, part) for rank in rest) for part in ("data", "compute")}
    part = max(usual, key=lambda part: getattr(first, part) - usual[part])
    who = " and ".join(f"rank {rank.rank}" + (f" ({rank.node})" if rank.node else "") for rank in slow[:3])
    more = f" and {len(slow) - 3} more" if len(slow) > 3 else ""
    return (
        f"{who[0].upper()}{who[1:]}{more} {'is the straggler' if len(slow) == 1 else 'are the stragglers'}: "
        f"waiting only {words.milliseconds(first.wait)} a step while the others wait {words.milliseconds(usual_wait)}, "
        f"{words.percent(usual_wait / median(rank.whole for rank in rest))} of their time. "
        f"Its {part} takes {words.milliseconds(getattr(first, part))}, theirs {words.milliseconds(usual[part])}."
    )


def section(times: dict[int, list[StepTime]], nodes: dict[int, str], script: bool = False) -> StepsSection:
    """The values of templates/steps.html; without bars if no rank wrote step times.

    If no rank of a script knows how long it waits, there is no straggler.
    """
    if not times:
        return StepsSection("", 0, [], [])
    means = [mean(rank, nodes.get(rank, ""), rows) for rank, rows in sorted(times.items())]
    waits = all(row.wait_known for rows in times.values() for row in rows)
    names = {part: name for part, name in (SCRIPT_NAMES if script else NAMES).items() if waits or part != "wait"}
    steps_seen = round(min(sum(row.count for row in rows) for rows in times.values()))
    reports = min(map(len, times.values()))
    enough = steps_seen >= FEWEST_STEPS and reports >= FEWEST_REPORTS
    slow = {straggler.rank for straggler in stragglers(means)} if waits and enough else set[int]()
    seen = f"{several(steps_seen, 'step')} in {several(reports, 'report')}"
    judged = f"{verdict(means)} Judged on {seen}." if enough else f"Too few steps to name a straggler: {seen}."
    by_interest = sorted(means, key=lambda rank: (rank.rank not in slow, rank.rank))
    return StepsSection(
        judged if waits and len(means) > 1 else "",
        len(means),
        _bars(sorted(by_interest[:BARS], key=lambda rank: rank.rank), slow, names),
        _over_time(sorted(by_interest[:OVER_TIME], key=lambda rank: rank.rank), times, names),
        names,
        WAIT_UNKNOWN if len(means) > 1 and not waits else "",
    )


def _bars(means: list[Mean], slow: set[int], names: Mapping[str, str]) -> list[Bar]:
    longest = max(rank.whole for rank in means) or 1.0
    bars = []
    for rank in means:
        values = {part: getattr(rank, part) for part in names}
        pieces = [Piece(part, f"{ms / longest:.3%}", f"{names[part]} {ms:,.1f} ms") for part, ms in values.items()]
        cells = [f"{ms:,.1f}" for ms in (*values.values(), rank.whole)]
        bars.append(Bar(rank.rank, rank.node, rank.rank in slow, pieces, cells))
    return bars


def _slices(times: list[StepTime]) -> list[StepTime]:
    """At most SLICES step times, each the mean of its neighbours."""
    each = -(-len(times) // SLICES)
    groups = [times[start : start + each] for start in range(0, len(times), each)]
    means = [(group[-1].step, mean(0, "", group)) for group in groups]
    return [StepTime(step, 1, part.data, part.compute, part.wait, part.whole) for step, part in means]


def _over_time(means: list[Mean], times: dict[int, list[StepTime]], names: Mapping[str, str]) -> list[Drawing]:
    sliced = {rank.rank: _slices(times[rank.rank]) for rank in means}
    top = max(row.data + row.compute + row.wait for rows in sliced.values() for row in rows)
    charts = []
    for rank in means:
        rows = sliced[rank.rank]
        series = [Series(name, [(row.step, getattr(row, part)) for row in rows], part) for part, name in names.items()]
        title = f"rank {rank.rank}" + (f" · {rank.node}" if rank.node else "")
        charts.append(draw(Chart(title, "ms", series, stacked=True, top=top, legend=False, note="ms per step")))
    return charts
