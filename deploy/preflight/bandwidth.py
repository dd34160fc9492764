"""Every pair's rate without letting pairs disturb each other: the rounds, the rates, and who is slow. Pure.

Rounds by the circle method of tournaments: one host stays, the others move on by one; N - 1 rounds of N / 2 pairs (N
rounds where N is odd, each with one host at rest).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deploy.preflight.answers import Answers
from deploy.preflight.quality import SLOW_MBIT
from deploy.preflight.verdict import FAULT, WARNING, Finding, listed

SIZE, WAIT_S, MOST_AGAIN = 8 << 20, 3.0, 6
# Of the median: below it a link is told of; a host is told of where all of its links are.
SLOW = 0.4
Pair = tuple[str, str]


def rounds(hosts: Sequence[str]) -> Iterator[list[Pair]]:
    """Pairs that do not meet, round after round, until every host has met every other once."""
    circle: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        ends = zip(circle[:half], reversed(circle[half:]), strict=True)
        yield [(one, other) for one, other in ends if one and other]
        circle = [circle[0], circle[-1], *circle[1:-1]]


def call(answers: Answers, pair: Pair) -> dict[str, Any] | None:
    """The target of one measurement; None where the pair has no way that works."""
    for link in answers.between(*pair, "data"):
        if link.ok:
            where = {"host": link.target, "address": link.address, "port": link.port}
            return {**where, "id": 0, "kinds": ["bandwidth"], "size": SIZE, "wait": WAIT_S}
    return None


def rates(answers: Answers) -> dict[Pair, float]:
    """Mbit/s from each host to each, as one TCP connection gets through; the best where it was measured again."""
    found: dict[Pair, float] = {}
    for link in answers.links:
        if "bandwidth" not in link.kinds:
            continue
        # What did not end in time has at least the rate that the kernel saw.
        there = 8e-6 * link.size / link.send_s if link.send_s else 8e-6 * link.rate
        found[link.source, link.target] = max(there, found.get((link.source, link.target), 0.0))
        if back_s := link.both_s - link.send_s if link.ok else 0.0:
            back = 8e-6 * link.size / back_s
            found[link.target, link.source] = max(back, found.get((link.target, link.source), 0.0))
    return found


def again(answers: Answers) -> list[Pair]:
    """Pairs to measure once more, one by one: those that look slow may only have had to wait for a core."""
    known = rates(answers)
    middle = statistics.median(known.values()) if known else 0.0
    slow = sorted((rate, pair) for pair, rate in known.items() if rate < SLOW * middle)
    return list({frozenset(pair): pair for _, pair in slow[: 2 * MOST_AGAIN]}.values())[:MOST_AGAIN]


def check(answers: Answers) -> Iterator[Finding]:
    """The slow host, or the slow link, of a matrix."""
    known = rates(answers)
    if len(known) < 3 * 2:
        return
    middle = statistics.median(known.values())
    left = {pair for pair, rate in known.items() if rate < SLOW * middle}
    for host in answers.told:
        for way, word in ((0, "sends"), (1, "receives")):
            mine = [pair for pair in known if pair[way] == host]
            if mine and all(pair in left for pair in mine):
                yield _finding(known, mine, (host,), f"{host} {word} slowly", middle)
                left -= set(mine)
    for pair in sorted(left):
        yield _finding(known, [pair], pair, f"the link from {pair[0]} to {pair[1]} is slow", middle, pair)


def _finding(
    known: Mapping[Pair, float],
    pairs: Sequence[Pair],
    hosts: tuple[str, ...],
    what: str,
    middle: float,
    link: Pair | None = None,
) -> Finding:
    rate = statistics.median(known[pair] for pair in pairs)
    text = f"{what}: {rate:.0f} Mbit/s, where the others get {middle:.0f}"
    shown = tuple(f"{one} -> {other} {known[one, other]:.0f} Mbit/s" for one, other in pairs[:4])
    fix = f"on {listed(hosts)}: ethtool <interface> | grep -i -e speed -e duplex; ip -s link; the switch port"
    way, level = "one-way" if link else "", FAULT if rate < SLOW_MBIT else WARNING
    return Finding(
        "link-slow", "links", hosts, text, shown, "the slowest sets every step's pace", fix, level, link, way
    )
