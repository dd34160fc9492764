"""Large packets: connections that open and then stall, and interfaces that disagree on the packet size. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...causes.finding import FAULT, WARNING, Finding, find
from ...core.text import listed
from .. import remedies, traffic
from ..answers import Answers, Link
from .link_quality import far_apart, loses_small_ones
from .links import with_rules

SYMPTOM = "rendezvous and init pass; the first large all_reduce hangs until the timeout (30 min)"


def check(answers: Answers) -> Iterator[Finding]:
    """A payload that stalls is a fault; sizes that differ and still work are worth a word."""
    sizes = {
        host: answers.facts[host]["interfaces"].get(pick.interface, {}).get("mtu", 0)
        for host, pick in answers.plan.data.items()
        if pick.interface and not pick.problem
    }
    stalled = [link for link in answers.links if link.outcome.startswith("stall") and "data" in link.kinds]
    stalled = [link for link in stalled if not far_apart(answers, link.source, link.target)]
    if stalled and not loses_small_ones(answers, {frozenset((link.source, link.target)) for link in stalled}):
        yield _blackhole(answers, stalled, sizes)
    elif not stalled and len({size for size in sizes.values() if size}) > 1 and len(answers.hosts_with_facts) > 1:
        common = Counter(sizes.values()).most_common(1)[0][0]
        odd = tuple(host for host, size in sizes.items() if size != common)
        shown = tuple(f"{host}: {size}" for host, size in sizes.items())
        yield find("mtu-differs", odd, f"the packet size (MTU) differs: {listed(shown)}", level=WARNING, evidence=shown)


def _blackhole(answers: Answers, stalled: list[Link], sizes: dict[str, int]) -> Finding:
    # Who sends the lost packets: the caller while it sends, the called host while it returns them.
    ways = {traffic.sender(link) for link in stalled}
    pairs = {frozenset((link.source, link.target)) for link in stalled}
    common = [host for host in answers.hosts_with_facts if all(host in pair for pair in pairs)]
    odd = _odd(sizes)
    if len(answers.hosts_with_facts) > 2 and len(common) == 1:
        hosts = tuple(common)
    elif odd:
        hosts = tuple(odd)
    else:
        # Who sends them and who gets them are suspects alike, until the firewall of one has lost our packets.
        hosts = tuple(common if len(common) == 1 else sorted(set().union(*pairs)))
    if len(hosts) > 1:
        hosts = with_rules(answers, hosts) or hosts
    sized = ", ".join(f"{host} {size}" for host, size in sizes.items())
    known = [size for size in sizes.values() if size]
    # Where all have one size, the path takes less: of large frames what every switch takes, else the least of IPv6.
    least = min(known) if len(set(known)) > 1 else 1500 if min(known, default=0) > 1500 else 1280
    fix = remedies.with_interface(answers, hosts, f"sudo ip link set dev IF mtu {least}")
    fix += "   (or let ICMP `fragmentation needed` through)"
    direction = "one-way" if len({source for source, _ in ways}) == 1 else "both"
    first = next(iter(stalled))
    link = (first.source, first.target) if len(pairs) == 1 else None
    evidence = tuple(link_.describe() for link_ in stalled[:3])
    cells = tuple(dict.fromkeys((link_.source, link_.target) for link_ in stalled))
    needed = any(traffic.carries(answers, *way) for way in ways)
    symptom, level = (SYMPTOM, FAULT) if needed else (traffic.UNUSED, WARNING)
    return find(
        "mtu-blackhole",
        hosts,
        f"large packets get lost between {listed(_shown(pairs))}; small ones pass (MTU: {sized})",
        fix,
        level,
        evidence=evidence,
        symptom=symptom,
        link=link,
        direction=direction,
        cells=cells,
    )


def _shown(pairs: set[frozenset[str]]) -> list[str]:
    return [" and ".join(sorted(pair)) for pair in sorted(pairs, key=sorted)]


def _odd(sizes: dict[str, int]) -> list[str]:
    """The hosts whose packet size differs from most; of two hosts, the one with the larger size."""
    counts = Counter(size for size in sizes.values() if size)
    if len(counts) < 2:
        return []
    (common, times), *_ = counts.most_common()
    if times == 1 or list(counts.values()).count(times) > 1:
        return [host for host, size in sizes.items() if size == max(counts)]
    return [host for host, size in sizes.items() if size != common]
