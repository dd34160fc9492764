"""Measure the rates between all hosts so that no pair disturbs another: rounds, rates, and slow hosts or links. Pure.

The rounds follow the circle method for tournaments: one host keeps its place, the others move on by one. That gives
N - 1 rounds of N / 2 pairs (or N rounds if N is odd, with one host pausing in each).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from ...causes.finding import FAULT, WARNING, Finding, find
from .. import targets
from ..answers import Answers, Pair
from .link_quality import SLOW_MBIT

SIZE, WAIT_S, MOST_AGAIN, FEW = 8 << 20, 3.0, 16, 3
# A link is slow if its rate is below this share of the hosts' usual rate. A host is slow if all its links are.
SLOW = 0.4


def rounds(hosts: Sequence[str]) -> Iterator[list[Pair]]:
    """Yield rounds of pairs until every host has met every other one; each host is in a round at most once."""
    circle: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        ends = zip(circle[:half], reversed(circle[half:]), strict=True)
        yield [(host, other) for host, other in ends if host and other]
        circle = [circle[0], circle[-1], *circle[1:-1]]


def call(answers: Answers, pair: Pair) -> targets.Call | None:
    """Return the call for one measurement; None if the pair has no working connection."""
    for link in answers.between(*pair, "data"):
        if link.ok:
            return targets.call_like(link, "bandwidth", SIZE, WAIT_S)
    return None


def rates(answers: Answers) -> dict[Pair, float]:
    """Return the Mbit/s from each host to each other one over one TCP connection; the best of several measurements."""
    best: dict[Pair, float] = {}
    for link in answers.links:
        if "bandwidth" not in link.kinds:
            continue
        forth, back = link.mbit
        # A call that did not end in time had at least the rate that the kernel measured.
        best[link.ends] = max(forth or 8e-6 * link.rate, best.get(link.ends, 0.0))
        if back:
            best[link.ends[::-1]] = max(back, best.get(link.ends[::-1], 0.0))
    return best


def again(answers: Answers) -> list[Pair]:
    """Return the slow pairs to measure once more, one by one: such a pair may only have had to wait for a CPU core.

    If all links of a host are slow, that is not chance, so they are not measured again.
    """
    known = rates(answers)
    left = _slow(known)
    for host in answers.facts:
        for way in (0, 1):
            left -= mine if len(mine := _own(known, host, way)) >= FEW and mine <= left else set()
    return list({frozenset(pair): pair for pair in sorted(left, key=lambda pair: known[pair])}.values())[:MOST_AGAIN]


def check(answers: Answers) -> Iterator[Finding]:
    """Report the slow hosts, then the slow links between other hosts."""
    known = rates(answers)
    if len(known) < 6:  # three hosts, in both directions, are the least that can be compared
        return
    left = _slow(known)
    for host in answers.facts:
        sides = {word: _own(known, host, way) for way, word in ((0, "sends"), (1, "receives"))}
        slow = {word: mine for word, mine in sides.items() if mine and mine <= left}
        if slow:
            mine = sorted(pair for pairs in slow.values() for pair in pairs)
            yield _finding(known, mine, (host,), f"{host} {' and '.join(slow)} slowly")
            left = left - set(mine)
    for pair in sorted(left):
        both = pair[::-1] in left
        if not both or pair < pair[::-1]:
            ways = [pair, pair[::-1]] if both else [pair]
            text = f"the link between {pair[0]} and {pair[1]}" if both else f"the link from {pair[0]} to {pair[1]}"
            yield _finding(known, ways, pair, f"{text} is slow", pair)


def _usual(known: Mapping[Pair, float]) -> float:
    """Return the median of the hosts' best rates: it does not depend on how many links a slow host slows down."""
    best: dict[str, float] = {}
    for pair, rate in known.items():
        for host in pair:
            best[host] = max(rate, best.get(host, 0.0))
    return statistics.median(best.values()) if best else 0.0


def _slow(known: Mapping[Pair, float]) -> set[Pair]:
    usual = _usual(known)
    return {pair for pair, rate in known.items() if rate < SLOW * usual}


def _own(known: Mapping[Pair, float], host: str, way: int) -> set[Pair]:
    """Return the pairs in which a host sends (way 0) or receives (way 1)."""
    return {pair for pair in known if pair[way] == host}


def _finding(
    known: Mapping[Pair, float],
    pairs: Sequence[Pair],
    hosts: tuple[str, ...],
    what: str,
    link: Pair | None = None,
) -> Finding:
    rate = statistics.median(known[pair] for pair in pairs)
    shown = [f"{first} -> {other} {known[first, other]:.0f} Mbit/s" for first, other in pairs[:4]]
    return find(
        "link-slow",
        hosts,
        f"{what}: {rate:.0f} Mbit/s, while the others get {_usual(known):.0f}",
        level=FAULT if rate < SLOW_MBIT else WARNING,
        evidence=shown,
        symptom="the slowest link sets the pace of every step",
        link=link,
    )
