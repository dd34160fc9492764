"""Where the time of a step went, by rank, and which ranks are slow. Pure.

Flow: step times by rank -> means -> bars and a sentence -> templates/run.html. run/inquest/slow.py decides which rank
is slow; below FEWEST_STEPS steps or FEWEST_REPORTS reports, no rank is called slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...run.inquest.slow import WorkTimes
from ...run.state.ranks import StepTime

# The fields of a StepTime, with their names in the live view.
NAMES = {"data": "data", "compute": "compute", "wait": "waiting"}
WAIT_UNKNOWN = "Muster cannot tell how long a rank waits for the others: that time counts as computing."
WAITING = "Waiting is the time spent in communication: the slow rank waits least, and the others wait for it."
NOBODY = "No rank is slow: each works about as long as the others."
BARS, SENTENCES = 64, 3
FEWEST_STEPS, FEWEST_REPORTS = 20, 3


def mean(times: Sequence[StepTime]) -> StepTime:
    """The mean over all steps; each entry counts for as many steps as it covers. `times` is not empty."""
    weight = sum(time.count for time in times)
    data, compute, wait, whole = (
        sum(getattr(time, part) * time.count for time in times) / weight for part in (*NAMES, "whole")
    )
    return StepTime(times[-1].step, weight, data, compute, wait, whole, all(time.wait_known for time in times))


def slow_ranks(means: Mapping[int, StepTime], nodes: Mapping[int, str]) -> dict[int, str]:
    """The slow ranks, each with a sentence: at what it is slow, and how long the others take."""
    works, sentences = WorkTimes.of(means), {}
    for rank, mean in means.items():
        if slowness := works.slow(rank):
            who = f"{nodes[rank]} (rank {rank})" if rank in nodes else f"Rank {rank}"
            sentences[rank] = slowness.sentence(who, f"its {mean.count:,} steps") + "."
    return sentences


def section(times: Mapping[int, Sequence[StepTime]], nodes: Mapping[int, str]) -> dict[str, Any]:
    """The values about steps for templates/run.html; empty if no rank wrote step times.

    If it is not known how long the ranks wait, no rank is called slow.
    """
    if not times:
        return {}
    means = {rank: mean(rows) for rank, rows in sorted(times.items())}
    waits = all(mean.wait_known for mean in means.values())
    enough = all(mean.count >= FEWEST_STEPS and len(times[rank]) >= FEWEST_REPORTS for rank, mean in means.items())
    judged = waits and enough and len(means) > 1
    marked = slow_ranks(means, nodes) if judged else {}
    shown = sorted(sorted(means, key=lambda rank: rank not in marked)[:BARS])
    names = {part: name for part, name in NAMES.items() if waits or part != "wait"}
    longest = max(means[rank].whole for rank in shown) or 1.0
    return {
        "verdicts": [*marked.values()][:SENTENCES] or [NOBODY] * judged,
        "ranks": len(means),
        "bars": [
            {"rank": rank, "node": nodes.get(rank, ""), "slow": rank in marked, **_bar(means[rank], longest, names)}
            for rank in shown
        ],
        "names": names,
        "note": "" if len(means) < 2 else WAITING if waits else WAIT_UNKNOWN,
    }


def _bar(mean: StepTime, longest: float, names: Mapping[str, str]) -> dict[str, Any]:
    """The bar for a mean step: its parts, with widths as shares of the longest bar, and its numbers."""
    values = {part: getattr(mean, part) for part in names}
    pieces = [(part, f"{ms / longest:.3%}", f"{names[part]} {ms:,.1f} ms") for part, ms in values.items()]
    return {"pieces": pieces, "cells": [f"{ms:,.1f}" for ms in (*values.values(), mean.whole)]}
