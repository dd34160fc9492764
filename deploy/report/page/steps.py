"""Where the time of a step went, by rank, and which rank is slow. Pure.

Flow: step times by rank -> means -> bars and a sentence -> templates/run.html. run/inquest/slow.py decides who is slow;
under FEWEST_STEPS steps, in FEWEST_REPORTS reports, nobody is called so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...run.inquest.slow import slow
from .data import StepTime

# By the field of a time: its name, as the live view has it.
NAMES = {"data": "data", "compute": "compute", "wait": "waiting"}
WAIT_UNKNOWN = "How long a rank waits for the others is not known: the time is part of what it computes."
WAITING = "Waiting is the time of communication: who is slow waits least, and the others wait for it."
NOBODY = "No rank is slow: each works about as long as the others."
BARS, SENTENCES = 64, 3
FEWEST_STEPS, FEWEST_REPORTS = 20, 3


@dataclass(frozen=True)
class Mean:
    """Mean milliseconds a step, on one rank, over `count` steps."""

    rank: int
    node: str
    data: float
    compute: float
    wait: float
    whole: float
    count: float


def mean(rank: int, node: str, times: list[StepTime]) -> Mean:
    """The mean over all steps, each line counting as many steps as it covers. `times` is not empty."""
    weight = sum(time.count for time in times)
    data, compute, wait, whole = (
        sum(getattr(time, part) * time.count for time in times) / weight for part in (*NAMES, "whole")
    )
    return Mean(rank, node, data, compute, wait, whole, weight)


def slow_ranks(means: list[Mean]) -> dict[int, str]:
    """The slow ranks, each with a sentence: at what, and how long the others take."""
    own = {mean.rank: mean.data + mean.compute for mean in means}
    data = {mean.rank: mean.data for mean in means}
    sentences = {}
    for mean in means:
        if slowness := slow(mean.rank, own, data):
            who = f"{mean.node} (rank {mean.rank})" if mean.node else f"Rank {mean.rank}"
            sentences[mean.rank] = slowness.sentence(who, f"its {mean.count:,.0f} steps") + "."
    return sentences


def section(times: dict[int, list[StepTime]], nodes: dict[int, str]) -> dict[str, Any]:
    """What templates/run.html writes of the steps; empty if no rank wrote step times.

    Where ranks do not know how long they wait, none is slow.
    """
    if not times:
        return {}
    means = [mean(rank, nodes.get(rank, ""), rows) for rank, rows in sorted(times.items())]
    waits = all(row.wait_known for rows in times.values() for row in rows)
    names = {part: name for part, name in NAMES.items() if waits or part != "wait"}
    enough = min(mean.count for mean in means) >= FEWEST_STEPS and min(map(len, times.values())) >= FEWEST_REPORTS
    judged = waits and enough and len(means) > 1
    marked = slow_ranks(means) if judged else {}
    shown = sorted(means, key=lambda mean: (mean.rank not in marked, mean.rank))[:BARS]
    return {
        "verdicts": [*marked.values()][:SENTENCES] or [NOBODY] * judged,
        "ranks": len(means),
        "bars": _bars(sorted(shown, key=lambda mean: mean.rank), marked, names),
        "names": names,
        "note": "" if len(means) < 2 else WAITING if waits else WAIT_UNKNOWN,
    }


def _bars(means: list[Mean], marked: Mapping[int, str], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Each rank's mean step: its parts, whose widths are shares of the longest bar, and its numbers."""
    longest = max(rank.whole for rank in means) or 1.0
    bars = []
    for rank in means:
        values = {part: getattr(rank, part) for part in names}
        pieces = [(part, f"{ms / longest:.3%}", f"{names[part]} {ms:,.1f} ms") for part, ms in values.items()]
        cells = [f"{ms:,.1f}" for ms in (*values.values(), rank.whole)]
        bars.append({"rank": rank, "slow": rank.rank in marked, "pieces": pieces, "cells": cells})
    return bars
