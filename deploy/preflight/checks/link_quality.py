"""Links that work badly: many retransmissions, long delays, or rates far too low for training. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from ...causes.finding import FAULT, UNKNOWN, WARNING, Finding, find
from ...core.text import listed
from .. import reachability, remedies, targets
from ..answers import Answers, Link, Pair
from ..networks import rate_words

# Shares of segments that were sent again. At a few percent, TCP loses most of its rate. FEWEST: the least number of
# segments that gives a share.
LOSS_FAULT, LOSS_WARN, FEWEST = 0.06, 0.02, 40
# torch trains if a fifth of the segments is lost in one direction, but not with a third, or with a tenth in both.
ONE_WAY_FAULT, BOTH_FAULT, FEWEST_ONE_WAY = 0.27, 0.05, 20
# The limit if only calls were repeated, and no segments: a firewall may limit connections, and torch retries calls too.
CALLS_FAULT = 0.08
LOSS_SMALL, FEW_SMALL = 0.04, 16
# Limits for the shortest round trip. In one building it is below 2 ms, between cities below 100 ms. With 20 ms in each
# direction, steps took several times as long (measured in the fault laboratory); at 600 ms, torch's rendezvous fails.
FAR_MS, FARTHER_MS = 15.0, 250.0
SLOW_MBIT, SLOWISH_MBIT = 40.0, 100.0
ONE_WAY_TIMES = 3  # a direction that takes this many times as long as the other one is the slow one
FIRST_WINDOW = 14_600  # bytes that TCP sends before the first answer


def check(answers: Answers) -> Iterator[Finding]:
    """Check the delay and the loss between the hosts, then the rates, which probes measure if a payload was slow."""
    if len(answers.facts) < 2:
        return
    yield from _delay(answers)
    yield from _loss(answers)
    yield from _some_calls(answers)
    if not any("bandwidth" in link.kinds for link in answers.links):  # bandwidth.py reports more from such calls
        yield from _rate(answers)


def _loss(answers: Answers) -> Iterator[Finding]:
    # Long calls are left out: they are only made after good calls, and their many packets would hide other calls' loss.
    short = {
        ends: [link for link in answers.both_ways(ends) if "long" not in link.kinds and link.outcome != "mute"]
        for ends in itertools.combinations(answers.hosts_with_facts, 2)
    }
    pairs = {ends: _share([link for link in links if link.sent]) for ends, links in short.items()}
    pair = max(pairs, key=lambda ends: pairs[ends])
    worst = pairs[pair]
    if worst < LOSS_WARN:
        return
    bad = {ends for ends, lost in pairs.items() if lost >= max(LOSS_WARN, 0.25 * worst)}
    # The host whose every link is bad, if there is one.
    hosts = tuple(host for host in answers.facts if all(ends in bad for ends in pairs if host in ends))
    single = len(bad) == 1 or not hosts
    culprit = reachability.dropping_host(answers, pair) if single or len(answers.facts) == 2 else ()
    culprit = culprit or (_bad_everywhere(answers, pair, short) if single else ())
    again = any(link.again for link in short[pair])
    grave = worst >= LOSS_FAULT if again else worst >= CALLS_FAULT
    stops = any(not link.ok and link.size for ends in bad for link in short[ends])
    grave = grave and (not again or stops or any(_grave_ways(short[ends]) for ends in bad))
    # If large payloads pass at a good rate in spite of the loss, training works too.
    grave = grave and (stops or not all(_fast(answers, ends) for ends in bad))
    shown = [f"{first} and {other}: {lost:.0%}" for (first, other), lost in pairs.items() if lost >= LOSS_WARN]
    fix = remedies.with_interface(
        answers,
        pair if single else hosts,
        "ip -s link; ethtool -S IF | grep -i err; then check the cable and the switch",
    )
    yield find(
        "link-loss",
        culprit or (pair if single else hosts),
        f"{listed(pair if single else hosts)}: {worst:.0%} of the packets were sent again",
        fix,
        "fault" if grave else WARNING,
        evidence=shown[:4],
        link=pair if single or len(answers.facts) == 2 else None,
        cells=tuple(cell for ends in bad for cell in (ends, ends[::-1])),
    )


def _some_calls(answers: Answers) -> Iterator[Finding]:
    """Report pairs where some of many calls get no answer, but open connections lose nothing.

    There may be several paths between the hosts, one of them dead: the ports of a call decide which path it takes.
    """
    for source, target, answered, calls in answers.often:
        ends = source, target
        both = answers.both_ways(ends)
        lost = sum(link.again for link in both if link.ok) / max(1, sum(link.sent for link in both if link.ok))
        # If a connection stopped after some bytes and none could be opened since, every path is closed, not only one.
        closed = not answered and any(link.moved for link in both if not link.ok)
        if answered > targets.MOST_ANSWERED * calls or lost >= LOSS_WARN or closed:
            continue
        text = (
            f"only {answered} of {calls} connections from {ends[0]} to {ends[1]} were answered, but open "
            "connections lose nothing: one of several paths between them is dead, or something limits connections"
        )
        fix = remedies.with_interface(
            answers, ends, "cat /proc/net/bonding/*; ip -d link show IF; sudo nft list ruleset | grep -i limit"
        )
        shown = (f"{ends[0]} -> {ends[1]}: {answered} of {calls} connections",)
        # A run opens fewer connections at the same time: a rehearsal must show whether they pass.
        yield find(
            "link-loss",
            reachability.dropping_host(answers, ends) or ends,
            text,
            fix,
            UNKNOWN,
            evidence=shown,
            symptom="the rendezvous sometimes succeeds; then a rank waits until its timeout",
            link=ends,
            cells=(ends,),
        )


def _bad_everywhere(answers: Answers, pair: Pair, links: Mapping[Pair, Sequence[Link]]) -> tuple[str, ...]:
    """Return the end of a lossy pair that has no clean link to any other host, if only one end is like that.

    A link counts as clean only if enough segments were sent on it.
    """

    def clean(host: str) -> bool:
        own = [ends for ends in links if host in ends and ends != pair]
        return any(
            all(link.ok for link in links[ends])
            and sum(link.sent for link in links[ends]) >= FEWEST
            and _share([link for link in links[ends] if link.sent]) < LOSS_WARN
            for ends in own
        )

    bad = [host for host in pair if not clean(host)] if len(answers.facts) > 2 else []
    return tuple(bad) if len(bad) == 1 else ()


def _fast(answers: Answers, ends: Pair) -> bool:
    """Whether all large payloads between these hosts passed, and one of them at a good rate."""
    calls = [link for link in answers.both_ways(ends) if "rate" in link.kinds]
    return all(link.ok for link in calls) and max(map(mbit_of, calls), default=0.0) >= SLOWISH_MBIT


def _grave_ways(links: Sequence[Link]) -> bool:
    """Whether training would stop because very much is lost in one direction, or much in both."""
    ways = [[link for link in links if link.source == source] for source in {link.source for link in links}]
    shares = [_share(way, FEWEST_ONE_WAY) for way in ways]
    return max(shares) >= ONE_WAY_FAULT or (len(shares) > 1 and min(shares) >= BOTH_FAULT)


def round_trips(answers: Answers) -> dict[frozenset[str], float]:
    """Return the shortest round trip of each pair, in ms: the kernel's value, else the time from call to answer."""
    best: dict[frozenset[str], float] = {}
    for link in answers.links:
        if link.ms and link.is_outward:
            taken = link.trip_ms or min(link.ms, 1000 * link.both_s or link.ms)
            best[link.pair] = min(taken, best.get(link.pair, taken))
    return best


def distant_pairs(answers: Answers) -> set[frozenset[str]]:
    """Return the pairs whose round trip is so long that a payload may stall for that reason alone."""
    return {ends for ends, ms in round_trips(answers).items() if ms >= FARTHER_MS}


def _delay(answers: Answers) -> Iterator[Finding]:
    late = {ends: ms for ends, ms in round_trips(answers).items() if ms >= FAR_MS}
    if not late:
        return
    worst = max(late.values())
    hosts = reachability.shared_hosts(answers, late)
    shown = [f"{' and '.join(sorted(ends))}: {ms:.0f} ms" for ends, ms in late.items()][:4]
    far = worst >= FARTHER_MS
    yield find(
        "link-delay",
        hosts,
        f"{listed(hosts)}: an answer takes {worst:.0f} ms",
        level=FAULT if far else WARNING,
        evidence=shown,
        symptom="steps many times slower, or a timeout" if far else "short steps several times slower",
        link=(hosts[0], hosts[1]) if len(hosts) == 2 else None,
        cells=tuple(cell for ends in late for cell in itertools.permutations(sorted(ends), 2)),
    )


def loses_small_calls(answers: Answers, ends: Collection[frozenset[str]]) -> bool:
    """Whether calls without a payload between these pairs lose packets too, so the packet size is not the reason."""
    small = [link for link in answers.links if not link.size and link.pair in ends]
    if any(link.outcome == "at-times" for link in small):
        return True
    return _share([link for link in small if link.sent], FEW_SMALL) >= LOSS_SMALL


def _share(links: Sequence[Link], fewest: int = FEWEST) -> float:
    """Return the share of segments and connection attempts that were repeated; 0 for fewer than `fewest`.

    If at least half of the repeated segments arrived twice, none was lost: packets were reordered, or a host was busy.
    """
    sent = sum(link.sent for link in links) + len(links)
    again, twice = sum(link.again for link in links), sum(link.twice for link in links)
    lost = (again if again > 2 * twice else 0) + sum(link.tries - 1 for link in links)
    return lost / sent if sent >= fewest else 0.0


def mbit_of(link: Link) -> float:
    """Return the Mbit/s of a payload in both directions, or the kernel's best rate if that is higher.

    Two effects must not make a link look slow. One is a process that had to wait for a CPU core. The other is a long
    round trip: TCP starts with few packets, and doubles the data in flight with each round trip.
    """
    if link.outcome == "slow":  # the kernel's rate is only from the best moment, so it does not count here
        return 8e-6 * link.moved / 2.5
    spent = link.both_s or 2.5
    trips = 2 * (1 + math.log2(link.size / FIRST_WINDOW)) if link.size > FIRST_WINDOW else 0
    return max(16e-6 * link.size / max(spent - trips * link.trip_ms / 1000, spent / 10), 8e-6 * link.rate)


def _rate(answers: Answers) -> Iterator[Finding]:
    rates = dict[Pair, float]()
    for link in answers.links:
        if "rate" in link.kinds:
            rates[link.ends] = max(mbit_of(link), rates.get(link.ends, 0.0))
    slow = {ends: rate for ends, rate in rates.items() if rate < SLOWISH_MBIT}
    if not slow:
        return
    worst = min(slow.values())
    bad = [ends for ends, rate in slow.items() if rate <= 3 * worst]
    hosts = reachability.shared_hosts(answers, bad)
    shown = [f"{first} and {other}: {rate_words(rate)} in both directions" for (first, other), rate in slow.items()]
    fix = remedies.with_interface(answers, hosts, "ethtool IF | grep -i -e speed -e duplex; is it the right interface?")
    # A slow direction in which the run sends little delays no step.
    waits = any(
        reachability.carries(answers, *way, each_step=True) for ends in bad for way in _slow_ways(answers, ends)
    )
    yield find(
        "link-slow",
        hosts,
        f"{listed(hosts)}: a payload passes at only {rate_words(worst)}",
        fix,
        FAULT if waits and worst < SLOW_MBIT else WARNING,
        evidence=shown,
        symptom="steps many times slower",
        link=bad[0] if len(bad) == 1 or len(answers.facts) == 2 else None,
    )


def _slow_ways(answers: Answers, ends: Pair) -> set[Pair]:
    """Return the slow directions between two hosts with a slow call: only one if it took most of the time."""
    ways = set()
    for link in answers.between(*ends, "rate"):
        there_s, back_s = link.send_s, link.both_s - link.send_s
        ways |= {ends} if not there_s or back_s < ONE_WAY_TIMES * there_s else set()
        ways |= {ends[::-1]} if not there_s or there_s < ONE_WAY_TIMES * back_s else set()
    return ways
