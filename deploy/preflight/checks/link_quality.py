"""Links that work badly: many retransmissions, or rates far below any network meant for training. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ..answers import Answers, Link
from ..findings import WARNING, Finding, listed
from .links import with_rules

# Shares of segments that had to be sent again. TCP loses most of its rate at a few percent.
LOSS_FAULT, LOSS_WARN, FEWEST = 0.06, 0.02, 40
# Calls alone that were made again may also have met a firewall that counts connections, and torch tries again too.
CALLS_FAULT = 0.08
LOSS_SMALL, FEW_SMALL = 0.04, 16
# Until a call is answered, at best: a round trip. Between cities it is below 100 ms; torch's rendezvous fails with 600.
FAR_MS, FARTHER_MS = 60.0, 250.0
SLOW_MBIT, SLOWISH_MBIT = 40.0, 100.0


def check(answers: Answers) -> Iterator[Finding]:
    """Loss of each host with the others, then rates that were measured because a payload took long."""
    if len(answers.hosts_with_facts) < 2:
        return
    yield from _delay(answers)
    yield from _loss(answers)
    if not any("bandwidth" in link.kinds for link in answers.links):  # which tells more
        yield from _rate(answers)


def _loss(answers: Answers) -> Iterator[Finding]:
    # A long call is made where all was well, and its many packets would hide the few of the others.
    short = {
        ends: [link for link in answers.between(*ends) + answers.between(*ends[::-1]) if "long" not in link.kinds]
        for ends in itertools.combinations(answers.hosts_with_facts, 2)
    }
    pairs = {ends: _share([link for link in links if link.sent]) for ends, links in short.items()}
    pair = max(pairs, key=lambda ends: pairs[ends])
    worst = pairs[pair]
    if worst < LOSS_WARN:
        return
    bad = {ends for ends, lost in pairs.items() if lost >= max(LOSS_WARN, 0.25 * worst)}
    # The host whose every link is bad, if there is one.
    hosts = tuple(host for host in answers.hosts_with_facts if all(ends in bad for ends in pairs if host in ends))
    single = len(bad) == 1 or not hosts
    culprit = with_rules(answers, pair) if single or len(answers.hosts_with_facts) == 2 else ()
    shown = tuple(f"{first} and {other}: {lost:.0%}" for (first, other), lost in pairs.items() if lost >= LOSS_WARN)
    text = f"{listed(pair if single else hosts)}: {worst:.0%} of the packets had to be sent again"
    where = listed(pair if single else hosts)
    fix = f"on {where}: ip -s link; ethtool -S <interface> | grep -i err; then cable and switch"
    yield Finding(
        "link-loss",
        "links",
        culprit or (pair if single else hosts),
        text,
        shown[:4],
        "everything works, many times slower; now and then a timeout",
        fix,
        "fault" if worst >= (LOSS_FAULT if any(link.again for link in short[pair]) else CALLS_FAULT) else WARNING,
        pair if single or len(answers.hosts_with_facts) == 2 else None,
        "both",
    )


def round_trips(answers: Answers) -> dict[frozenset[str], float]:
    """Milliseconds there and back, the best of each two hosts: by the kernel, else from a call to its answer, which

    no payload there and back takes less than.
    """
    best: dict[frozenset[str], float] = {}
    for link in answers.links:
        if link.ms and link.source != link.target:
            ends = frozenset((link.source, link.target))
            taken = link.trip_ms or min(link.ms, 1000 * link.both_s or link.ms)
            best[ends] = min(taken, best.get(ends, taken))
    return best


def far_apart(answers: Answers, source: str, target: str) -> bool:
    """Whether a payload between these may stand still only because the way is long."""
    return round_trips(answers).get(frozenset((source, target)), 0.0) >= FARTHER_MS


def _delay(answers: Answers) -> Iterator[Finding]:
    late = {ends: ms for ends, ms in round_trips(answers).items() if ms >= FAR_MS}
    if not late:
        return
    worst = max(late.values())
    common = [host for host in answers.hosts_with_facts if all(host in ends for ends in late)]
    hosts = tuple(common if len(common) == 1 else sorted({host for ends in late for host in ends}))
    shown = tuple(f"{' and '.join(sorted(ends))}: {ms:.0f} ms" for ends, ms in late.items())[:4]
    text = f"{listed(hosts)}: {worst:.0f} ms until a call is answered"
    fix = f"on {listed(hosts)}: is this the way you mean? ip route get <a peer>; tracepath <a peer>"
    grave = "fault" if worst >= FARTHER_MS else WARNING
    pair = (hosts[0], hosts[1]) if len(hosts) == 2 else None
    yield Finding(
        "link-slow", "links", hosts, text, shown, "steps many times slower, or a timeout", fix, grave, pair, "both"
    )


def loses_small_ones(answers: Answers) -> bool:
    """Whether calls without a payload lose packets too, so that it is not their size."""
    small = [link for link in answers.links if not link.size and link.sent and link.source != link.target]
    return _share(small, FEW_SMALL) >= LOSS_SMALL


def _share(links: Sequence[Link], fewest: int = FEWEST) -> float:
    """Segments sent again, and connections tried again, of all that were sent.

    Where most of them came twice, nothing was lost: packets overtook each other, or somebody was busy.
    """
    sent = sum(link.sent for link in links) + len(links)
    again, twice = sum(link.again for link in links), sum(link.twice for link in links)
    lost = (again if again > 2 * twice else 0) + sum(link.tries - 1 for link in links)
    return lost / sent if sent >= fewest else 0.0


def mbit_of(link: Link) -> float:
    """Mbit/s of a payload there and back, or what the kernel saw delivered at best where that is more: a process that

    had to wait for a core does not make a slow link.
    """
    return max(16e-6 * link.size / (link.both_s or 2.5), 8e-6 * link.rate)


def _rate(answers: Answers) -> Iterator[Finding]:
    rates = dict[tuple[str, str], float]()
    for link in answers.links:
        if "rate" in link.kinds:
            ends = link.source, link.target
            rates[ends] = max(mbit_of(link), rates.get(ends, 0.0))
    slow = {ends: rate for ends, rate in rates.items() if rate < SLOWISH_MBIT}
    if not slow:
        return
    worst = min(slow.values())
    bad = [ends for ends, rate in slow.items() if rate <= 3 * worst]
    common = [host for host in answers.hosts_with_facts if all(host in ends for ends in bad)]
    hosts = tuple(common if len(common) == 1 else sorted({host for ends in bad for host in ends}))
    shown = tuple(f"{first} and {other}: {rate:.0f} Mbit/s there and back" for (first, other), rate in slow.items())
    text = f"{listed(hosts)}: a link of {worst:.0f} Mbit/s"
    fix = f"on {listed(hosts)}: ethtool <interface> | grep -i -e speed -e duplex; is it the right interface?"
    grave = "fault" if worst < SLOW_MBIT else WARNING
    link_ = bad[0] if len(bad) == 1 or len(answers.hosts_with_facts) == 2 else None
    yield Finding("link-slow", "links", hosts, text, shown, "steps many times slower", fix, grave, link_, "both")
