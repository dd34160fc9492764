"""Find slow ranks: the rule that compares a rank with the others, and the rank or link that holds up all. Pure.

lasting.py calls the latter; the live view and the page of a run mark slow ranks by the same rule.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from ...causes.end_causes import Cause
from ...core.text import ranks_in_words
from ..state.evidence import Evidence
from ..state.ranks import StepTime, ThrottledRank
from .causes import Finding

# A rank is marked as slow if it works _MARKED times as long as the others, and at least _LEAST_SLOW_MS longer.
_MARKED, _LEAST_SLOW_MS = 1.3, 5.0
# A rank holds up all others if it works _SLOWER times as long, and they wait for the share _WAITED of each step, for
# _SLOW_FOR_S, in _SLOW_STEPS steps and _SLOW_REPORTS reports: a single report may include a pause.
_SLOWER, _WAITED = 2.0, 0.4
_SLOW_FOR_S, _SLOW_STEPS, _SLOW_REPORTS = 8.0, 4, 3
_BUSY_PERCENT = 90.0


@dataclass(frozen=True)
class Slow:
    """A rank works `own_ms` in each step, the others `usual_ms`; `by_data`: most of the excess is waiting for data."""

    own_ms: float
    usual_ms: float
    by_data: bool

    def sentence(self, who: str, steps: str) -> str:
        """A sentence about how slow `who` is at what, in which `steps`."""
        what = "waits for its data" if self.by_data else "computes"
        often = f"{self.own_ms:.0f} ms of each of {steps}"
        return f"{who} is slow: it {what} for {often}, the others for {self.usual_ms:.0f} ms"


class WorkTimes:
    """Compares ranks by how many milliseconds each works in a step, and how many of these it waits for its data."""

    def __init__(self, own_ms: Mapping[int, float], data_ms: Mapping[int, float]) -> None:
        self._own, self._data = ((of, sorted(of.values())) for of in (own_ms, data_ms))

    @classmethod
    def of(cls, times: Mapping[int, StepTime]) -> WorkTimes:
        """The work times of ranks, each by one report."""
        return cls(*({rank: getattr(time, part) for rank, time in times.items()} for part in ("own", "data")))

    def slow(self, rank: int, times: float = _MARKED) -> Slow | None:
        """How slow a rank is; None if it is not slow, or if there is no other rank."""
        (own, ordered), (data, _) = self._own, self._data
        if len(ordered) < 2:
            return None
        usual, usual_data = (_usual_of_others(of[rank], every) for of, every in (self._own, self._data))
        more = own[rank] - usual
        if own[rank] < times * usual or more < _LEAST_SLOW_MS:
            return None
        return Slow(own[rank], usual, data[rank] - usual_data > more / 2)


def _usual_of_others(value: float, every: Sequence[float]) -> float:
    """The median of the sorted values in `every`, leaving out `value`."""
    at, middle = bisect_left(every, value), len(every) - 2
    low, high = (every[place + (place >= at)] for place in (middle // 2, (middle + 1) // 2))
    return (low + high) / 2


def held_up(evidence: Evidence) -> list[Finding]:
    """The rank or link that holds up all others; if there is none, the ranks that a CPU limit holds back."""
    return _slow(evidence) or _throttled(evidence)


def _slow(evidence: Evidence) -> list[Finding]:
    """The rank for which the others wait at each step, or the slow link if all ranks wait alike."""
    living = evidence.living
    recent = {rank: _recent(paces) for rank, paces in evidence.ranks.paces.items() if rank in living}
    if len(recent) < 2 or any(not of for of in recent.values()):
        return []
    # Only if at most one rank waits little can it be to blame; otherwise the other medians are not needed.
    hurried = (rank for rank, of in recent.items() if _usual(of, "wait") < _WAITED * _usual(of, "whole"))
    if len([*islice(hurried, 2)]) > 1:
        return []
    own, data, wait, step = (
        {rank: _usual(of, name) for rank, of in recent.items()} for name in ("own", "data", "wait", "whole")
    )
    rank = max(own, key=lambda each: own[each])
    others = [each for each in own if each != rank]
    waits = all(wait[each] >= _WAITED * step[each] for each in others)
    node, t = evidence.ranks.began.get(rank, ""), recent[rank][0].t
    steps = sum(pace.count for pace in recent[rank])
    if waits and wait[rank] < own[rank] and (slowness := WorkTimes(own, data).slow(rank, _SLOWER)):
        busy = evidence.nodes.cpus.get(node, 0.0)
        idle = [evidence.nodes.cpus.get(evidence.ranks.began[each], 100.0) for each in others]
        host = f"; the CPUs of {node} are {busy:.0f} % busy" if busy >= _BUSY_PERCENT > min(idle) else ""
        limit = f"; {_limit(evidence.ranks.throttled[rank])}" if rank in evidence.ranks.throttled else ""
        text = slowness.sentence(f"{node} (rank {rank})", f"its last {steps} steps")
        text += f", and {ranks_in_words(others)} wait{'s' if len(others) == 1 else ''} for it{limit or host}"
        return [Finding(Cause.SLOW, text, node, rank, t=t, lasting=True)]
    if all(wait[each] >= _WAITED * step[each] for each in own):
        return _slow_link(evidence, min(wait.values()), steps, t)
    return []


def _throttled(evidence: Evidence) -> list[Finding]:
    """The ranks that a CPU limit holds back, if not all ranks are held back."""
    living = evidence.living
    held = {rank: of for rank, of in evidence.ranks.throttled.items() if rank in living}
    if len(held) == len(living):
        return []
    return [
        Finding(
            Cause.SLOW,
            f"{living[rank]} (rank {rank}) is slow: {_limit(of)}",
            living[rank],
            rank,
            t=of.t,
            lasting=True,
        )
        for rank, of in sorted(held.items())
    ]


def _limit(held: ThrottledRank) -> str:
    return f"its limit of {held.cpus:g} CPUs throttled it in {held.percent:.0f} % of the kernel's periods"


def _slow_link(evidence: Evidence, wait_ms: float, steps: int, t: float) -> list[Finding]:
    ways = {
        (links.node, evidence.nodes.node_at(peer))
        for links in evidence.ranks.links.values()
        for _, peer in links.crowded
    }
    ways = {way for way in ways if way[0] != way[1]}
    if not ways:
        return []
    senders, receivers = Counter(way[0] for way in ways), Counter(way[1] for way in ways)
    (sender, sent), (receiver, received) = senders.most_common(1)[0], receivers.most_common(1)[0]
    tail = f"data queues up on it, and all ranks wait {wait_ms:.0f} ms of each of the last {steps} steps"
    if len(ways) not in (sent, received):
        return []
    node, which = (sender, f"of {sender}") if sent == len(ways) else (receiver, f"to {receiver}")
    which += f" to {receiver}" * (len(ways) == 1)
    return [Finding(Cause.SLOW, f"the link {which} is slow: {tail}", node, t=t, lasting=True)]


def _usual(paces: Sequence[StepTime], name: str) -> float:
    """The median of the time `name` in these reports."""
    return float(median(getattr(pace, name) for pace in paces))


def _recent(paces: Sequence[StepTime]) -> list[StepTime]:
    """The last reports that cover enough time and steps to judge; empty if there are too few."""
    recent = []
    seconds, steps = 0.0, 0
    for pace in reversed(paces):
        recent.append(pace)
        seconds, steps = seconds + pace.count * pace.whole / 1000, steps + pace.count
        if len(recent) >= _SLOW_REPORTS and seconds >= _SLOW_FOR_S and steps >= _SLOW_STEPS:
            return recent[::-1]
    return []
