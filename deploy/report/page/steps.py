"""Where the time of a step went, and which rank the others wait for. The decisions are pure; the drawing is at the end.

Place in the flow: step events by rank -> means, stragglers -> bars, areas over time and one sentence.

The rule: all ranks of a data-parallel step end together, so a slow rank shows as the one that does not wait. A rank is
a straggler when its mean wait is less than half the median wait of the other ranks, and shorter by at least a tenth
of a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from . import units as words
from .charts import Chart, Series, draw
from .data import StepTime
from .html import Html, join, tag

PARTS = ("data", "compute", "wait")
NAMES = {"data": "data", "compute": "compute", "wait": "waiting"}
BARS = 32
OVER_TIME = 6
SLICES = 80
RULE = (
    "Rule: all ranks of a step end together, so the slow one is the one that does not wait. A straggler’s mean wait is "
    "under half the median wait of the others, and shorter by at least a tenth of a step. Waiting is the time spent in "
    "communication."
)


@dataclass(frozen=True)
class Mean:
    """Mean milliseconds a step, on one rank, over the whole run."""

    rank: int
    node: str
    data: float
    compute: float
    wait: float
    whole: float


def mean(rank: int, node: str, times: list[StepTime]) -> Mean:
    """The mean over all steps, each line counting as many steps as it covers. `times` is not empty."""
    weight = sum(time.count for time in times)
    data, compute, wait, whole = (
        sum(getattr(time, part) * time.count for time in times) / weight for part in (*PARTS, "whole")
    )
    return Mean(rank, node, data, compute, wait, whole)


def stragglers(means: list[Mean]) -> list[Mean]:
    """The ranks the others wait for, by the rule above; empty for fewer than two ranks."""
    found = []
    for one in means:
        others = [other.wait for other in means if other is not one]
        if others and one.wait < median(others) / 2 and median(others) - one.wait >= one.whole / 10:
            found.append(one)
    return found


def verdict(means: list[Mean]) -> str:
    """One sentence: who the straggler is, what it is slow at, and what that costs the others."""
    found = stragglers(means)
    if not found:
        return "No straggler: " + (
            "one rank has nobody to wait for." if len(means) < 2 else "the ranks wait about as long as each other."
        )
    rest = [one for one in means if one not in found]
    kept = median(one.wait for one in rest)
    first = min(found, key=lambda one: one.wait)
    slow = max(("data", "compute"), key=lambda part: getattr(first, part) - median(getattr(one, part) for one in rest))
    own, usual = getattr(first, slow), median(getattr(one, slow) for one in rest)
    who = " and ".join(f"rank {one.rank}" + (f" ({one.node})" if one.node else "") for one in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return (
        f"{who[0].upper()}{who[1:]}{more} {'is the straggler' if len(found) == 1 else 'are the stragglers'}: "
        f"waiting only {words.milliseconds(first.wait)} a step while the others wait {words.milliseconds(kept)}, "
        f"{words.percent(kept / median(one.whole for one in rest))} of their time. "
        f"Its {slow} takes {words.milliseconds(own)}, theirs {words.milliseconds(usual)}."
    )


def section(times: dict[int, list[StepTime]], nodes: dict[int, str]) -> Html:
    """The page's part on step times; says so where no rank left any."""
    if not times:
        return tag("p", "No rank recorded step times.", class_="none")
    means = [mean(rank, nodes.get(rank, ""), rows) for rank, rows in sorted(times.items())]
    slow = stragglers(means)
    first = sorted(means, key=lambda one: (one not in slow, one.rank))
    return join(
        [
            tag("p", verdict(means), class_="finding"),
            _bars(sorted(first[:BARS], key=lambda one: one.rank), {one.rank for one in slow}),
            _left_out(len(means), BARS),
            tag("h3", "Over time"),
            _over_time(sorted(first[:OVER_TIME], key=lambda one: one.rank), times),
            _left_out(len(means), OVER_TIME),
            tag("p", RULE, class_="aside"),
        ]
    )


def _left_out(number: int, shown: int) -> Html:
    if number <= shown:
        return Html("")
    return tag("p", f"{shown} of {number} ranks are shown, stragglers first.", class_="aside")


def _bars(means: list[Mean], slow: set[int]) -> Html:
    longest = max(one.whole for one in means) or 1.0
    head = [tag("span", "ms per step", class_="who"), tag("span")]
    head += [tag("span", tag("i", class_=f"key {part}"), NAMES[part]) for part in PARTS] + [tag("span", "step")]
    rows = [tag("li", *head, class_="head")]
    for one in means:
        name = [tag("b", f"rank {one.rank}"), f" {one.node}"] + ([tag("em", " straggler")] if one.rank in slow else [])
        cells = [tag("span", f"{getattr(one, part):,.1f}") for part in (*PARTS, "whole")]
        pieces = [
            tag(
                "span",
                class_=part,
                style=f"width:{getattr(one, part) / longest:.3%}",
                title=f"{NAMES[part]} {getattr(one, part):,.1f} ms",
            )
            for part in PARTS
        ]
        rows.append(tag("li", tag("span", *name, class_="who"), tag("span", *pieces, class_="bar"), *cells))
    return tag("ol", *rows, class_="bars")


def _slices(times: list[StepTime]) -> list[StepTime]:
    """At most SLICES step times, each the mean of its neighbours."""
    each = -(-len(times) // SLICES)
    groups = [times[start : start + each] for start in range(0, len(times), each)]
    means = [(group[-1].step, mean(0, "", group)) for group in groups]
    return [StepTime(step, 1, one.data, one.compute, one.wait, one.whole) for step, one in means]


def _over_time(means: list[Mean], times: dict[int, list[StepTime]]) -> Html:
    sliced = {one.rank: _slices(times[one.rank]) for one in means}
    top = max(row.data + row.compute + row.wait for rows in sliced.values() for row in rows)
    charts = []
    for one in means:
        rows = sliced[one.rank]
        series = [Series(NAMES[part], [(row.step, getattr(row, part)) for row in rows], part) for part in PARTS]
        title = f"rank {one.rank}" + (f" · {one.node}" if one.node else "")
        charts.append(draw(Chart(title, "ms", series, stacked=True, top=top, legend=False, note="ms per step")))
    return tag("div", *charts, class_="trio")
