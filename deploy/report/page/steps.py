"""Where the time of a step went, and which rank the others wait for. Pure.

Flow: step events by rank -> means, stragglers -> bars and one sentence -> templates/run.html.

The rule: all ranks of a data-parallel step end together, so a slow rank shows as the one that does not wait. A rank is
a straggler when its mean wait is less than half the median wait of the other ranks, and shorter by at least a tenth
of a step. Under FEWEST_STEPS steps, told in FEWEST_REPORTS reports, nobody is called one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from ...core import text as words
from ...core.text import several
from .data import StepTime

PARTS = ("data", "compute", "wait")
NAMES = {"data": "data", "compute": "compute", "wait": "waiting"}
# The watcher of a script sees data and waiting; `compute` is the rest.
SCRIPT_NAMES = {**NAMES, "compute": "forward, backward, rest"}
WAIT_UNKNOWN = "How long a rank waits for the others is not known: the time is part of the backward pass."
BARS = 64
FEWEST_STEPS, FEWEST_REPORTS = 20, 3


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
    slow = []
    for rank in means:
        others = [other.wait for other in means if other is not rank]
        if others and rank.wait < median(others) / 2 and median(others) - rank.wait >= rank.whole / 10:
            slow.append(rank)
    return slow


def verdict(means: list[Mean]) -> str:
    """One sentence of several ranks: who the straggler is, what it is slow at, and what that costs the others."""
    slow = stragglers(means)
    if not slow:
        return "No straggler: the ranks wait about as long as each other."
    rest = [rank for rank in means if rank not in slow]
    usual_wait = median(rank.wait for rank in rest)
    first = min(slow, key=lambda rank: rank.wait)
    usual = {part: median(getattr(rank, part) for rank in rest) for part in ("data", "compute")}
    part = max(usual, key=lambda part: getattr(first, part) - usual[part])
    who = words.listed((f"rank {rank.rank}" + (f" ({rank.node})" if rank.node else "") for rank in slow), 3)
    return (
        f"{who[0].upper()}{who[1:]} {'is the straggler' if len(slow) == 1 else 'are the stragglers'}: "
        f"waiting only {words.milliseconds(first.wait)} a step while the others wait {words.milliseconds(usual_wait)}, "
        f"{words.percent(usual_wait / median(rank.whole for rank in rest))} of their time. "
        f"Its {part} takes {words.milliseconds(getattr(first, part))}, theirs {words.milliseconds(usual[part])}."
    )


def section(times: dict[int, list[StepTime]], nodes: dict[int, str], script: bool = False) -> dict[str, Any]:
    """What templates/run.html writes of the steps; empty if no rank wrote step times.

    If no rank of a script knows how long it waits, there is no straggler.
    """
    if not times:
        return {}
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
    return {
        "verdict": judged if waits and len(means) > 1 else "",
        "ranks": len(means),
        "bars": _bars(sorted(by_interest[:BARS], key=lambda rank: rank.rank), slow, names),
        "names": names,
        "note": WAIT_UNKNOWN if len(means) > 1 and not waits else "",
    }


def _bars(means: list[Mean], slow: set[int], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Each rank's mean step: its parts, whose widths are shares of the longest bar, and its numbers."""
    longest = max(rank.whole for rank in means) or 1.0
    bars = []
    for rank in means:
        values = {part: getattr(rank, part) for part in names}
        pieces = [(part, f"{ms / longest:.3%}", f"{names[part]} {ms:,.1f} ms") for part, ms in values.items()]
        cells = [f"{ms:,.1f}" for ms in (*values.values(), rank.whole)]
        bars.append({"rank": rank, "straggler": rank.rank in slow, "pieces": pieces, "cells": cells})
    return bars
