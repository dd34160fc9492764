"""Payloads: lost large packets, different packet sizes (MTU), and connections that stop after some data. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from ...causes.finding import FAULT, WARNING, Finding, find, foremost
from ...core.text import binary, listed
from .. import reachability, remedies
from ..answers import Answers, Link, ends_of
from .link_quality import distant_pairs, loses_small_calls

MOST_SIZES = 8
SYMPTOM = "rendezvous and init pass; the first large all_reduce hangs until the timeout (30 min)"


def check(answers: Answers) -> Iterator[Finding]:
    """Yield a fault if payloads stall, or a warning if packet sizes differ but payloads pass."""
    sizes = {
        host: answers.card(host).get("mtu", 0)
        for host, pick in answers.picks.items()
        if pick.interface and not pick.problem
    }
    stalled = [link for link in answers.links if link.outcome.startswith("stall") and "data" in link.kinds]
    distant = distant_pairs(answers)
    stalled = [link for link in stalled if link.pair not in distant]
    if stalled and not loses_small_calls(answers, {link.pair for link in stalled}):
        yield _blackhole(answers, stalled, sizes)
    elif not stalled and len({size for size in sizes.values() if size}) > 1 and len(answers.facts) > 1:
        common = Counter(sizes.values()).most_common(1)[0][0]
        odd = tuple(host for host, size in sizes.items() if size != common)
        shown = foremost([f"{host}: {size}" for host, size in sizes.items()], odd, 4)
        yield find(
            "mtu-differs", odd, f"the packet size (MTU) differs: {listed(shown)}", level=WARNING, evidence=shown[:4]
        )


def _blackhole(answers: Answers, stalled: list[Link], sizes: dict[str, int]) -> Finding:
    # Each way is (sender, receiver) of the lost packets: the caller sends first, then the called host returns them.
    ways = {reachability.sender(link) for link in stalled}
    pairs = {link.pair for link in stalled}
    # Sender and receiver are equally suspect, unless the firewall of one of them was seen to drop our packets.
    hosts = reachability.shared_hosts(answers, pairs)
    if len(answers.facts) <= 2 or len(hosts) > 1:
        hosts = tuple(_odd(sizes)) or hosts
    if len(hosts) > 1:
        hosts = reachability.dropping_host(answers, hosts) or hosts
    every = foremost([f"{host} {size}" for host, size in sizes.items()], _odd(sizes), MOST_SIZES)
    sized = ", ".join(every[:MOST_SIZES]) + f" and {len(sizes) - MOST_SIZES} more" * (len(sizes) > MOST_SIZES)
    known = [size for size in sizes.values() if size]
    # If all hosts have the same MTU, the path allows less: with jumbo frames, try 1500, which every switch takes; else
    # 1280, the minimum of IPv6.
    least = min(known) if len(set(known)) > 1 else 1500 if min(known, default=0) > 1500 else 1280
    fix = remedies.with_interface(answers, hosts, f"sudo ip link set dev IF mtu {least}")
    fix += "   (or let ICMP `fragmentation needed` through)"
    evidence = [link.describe() for link in stalled[:3]]
    needed = any(reachability.carries(answers, *way) for way in ways)
    symptom, level = (SYMPTOM, FAULT) if needed else (reachability.UNUSED, WARNING)
    return find(
        "mtu-blackhole",
        hosts,
        f"large packets get lost between {listed(_shown(pairs))}; small ones pass (MTU: {sized})",
        fix,
        level,
        evidence=evidence,
        symptom=symptom,
        link=stalled[0].ends if len(pairs) == 1 else None,
        cells=ends_of(stalled),
    )


def _shown(pairs: set[frozenset[str]]) -> list[str]:
    return [" and ".join(sorted(pair)) for pair in sorted(pairs, key=sorted)]


def _odd(sizes: dict[str, int]) -> list[str]:
    """Return the hosts whose MTU differs from the majority's; without a majority, those with the largest MTU."""
    counts = Counter(size for size in sizes.values() if size)
    if len(counts) < 2:
        return []
    (common, times), *_ = counts.most_common()
    if times == 1 or list(counts.values()).count(times) > 1:
        return [host for host, size in sizes.items() if size == max(counts)]
    return [host for host, size in sizes.items() if size != common]


def check_long_calls(answers: Answers) -> Iterator[Finding]:
    """Yield findings for payloads that stopped half-way, long calls that failed, and payloads that never began."""
    yield from _mute(answers)
    cut = [link for link in answers.links if link.outcome == "cut" or ("long" in link.kinds and not link.ok)]
    ends = {link.pair for link in cut}
    lossy = {pair for pair in ends if loses_small_calls(answers, {pair}) and not _counts_bytes(answers, pair)}
    cut = [link for link in cut if link.outcome != "slow" and link.pair not in lossy]
    if not cut:
        return
    pairs = {link.pair for link in cut}
    common = reachability.shared_hosts(answers, pairs)
    every = tuple(host for host in answers.hosts if any(host in pair for pair in pairs))
    hosts = reachability.dropping_host(answers, every) or (common if len(common) == 1 else every)
    between = f"{common[0]} and its peers" if len(common) == 1 else listed(every)
    reset = any(link.outcome in ("reset", "cut") for link in cut)
    least = min((link.moved for link in cut if link.moved), default=0)
    text = f"between {between}, a connection stops half-way" + (f", after {binary(least)}" if reset and least else "")
    fix = remedies.with_interface(
        answers, hosts, "sudo ethtool -K IF tso off gro off   (and sudo iptables -vnL: quota, connbytes)"
    )
    needed = any(reachability.carries(answers, *reachability.sender(link)) for link in cut)
    symptom, level = (SYMPTOM, FAULT) if needed else (reachability.UNUSED, WARNING)
    shown = [link.describe() for link in cut[:3]]
    link = cut[0].ends if len(pairs) == 1 else None
    yield find("connection-cut", hosts, text, fix, level, shown, symptom, link=link, cells=ends_of(cut))


def _counts_bytes(answers: Answers, hosts: Iterable[str]) -> bool:
    """Whether a firewall rule that counts bytes has just matched packets: then packet loss is not the reason."""
    rules = [rule for host in hosts for rule in answers.rules_that_dropped(host)]
    return any(re.search(r" -m (connbytes|quota) ", rule) for rule in rules)


def _mute(answers: Answers) -> Iterator[Finding]:
    """Yield findings for pairs where calls connect but all later packets are lost, which a bad cable cannot cause."""
    links = [link for link in answers.links if link.outcome == "mute"]
    cells = ends_of(links)
    for ends in dict.fromkeys(tuple(sorted(cell)) for cell in cells):
        mine = tuple(cell for cell in cells if set(cell) == set(ends))
        text = (
            f"{listed(ends)}: each connection opens, but nothing sent after that arrives: something drops the "
            "packets that follow the handshake (an inspecting firewall, a queue whose program has ended)"
        )
        evidence = [link.describe() for link in links if link.ends in mine][:4]
        hosts = (ends[0], ends[-1])
        yield find(
            "connection-cut",
            hosts,
            text,
            f"on {listed(ends)}: sudo iptables-save | grep -i -e NFQUEUE -e DROP; sudo nft list ruleset",
            evidence=evidence,
            link=hosts,
            cells=mine,
        )
