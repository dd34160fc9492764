"""Connections that carry some data but not much: something counts bytes, or breaks large segments. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ...causes.finding import FAULT, WARNING, Finding, find
from ...core.text import binary, listed
from .. import remedies, traffic
from ..answers import Answers
from .link_quality import loses_small_ones
from .links import with_rules
from .mtu import SYMPTOM


def check(answers: Answers) -> Iterator[Finding]:
    """Payloads that stopped half-way, the large ones after all small calls succeeded, or before they began."""
    yield from _mute(answers)
    cut = [link for link in answers.links if link.outcome == "cut" or ("long" in link.kinds and not link.ok)]
    ends = {frozenset((link.source, link.target)) for link in cut}
    lossy = {pair for pair in ends if loses_small_ones(answers, {pair}) and not _counts_bytes(answers, pair)}
    cut = [link for link in cut if link.outcome != "slow" and frozenset((link.source, link.target)) not in lossy]
    if not cut:
        return
    pairs = {frozenset((link.source, link.target)) for link in cut}
    common = tuple(host for host in answers.hosts_with_facts if all(host in pair for pair in pairs))
    every = tuple(host for host in answers.hosts if any(host in pair for pair in pairs))
    hosts = with_rules(answers, every) or (common if len(common) == 1 else every)
    between = listed(every) if len(pairs) == 1 or len(common) != 1 else f"{common[0]} and its peers"
    reset = any(link.outcome == "reset" or (link.moved and link.outcome == "cut") for link in cut)
    least = min((link.moved for link in cut if link.moved), default=0)
    text = f"between {between} a connection stops half-way" + (f", after {binary(least)}" if reset and least else "")
    fix = remedies.with_interface(
        answers, hosts, "sudo ethtool -K IF tso off gro off   (and sudo iptables -vnL: quota, connbytes)"
    )
    needed = any(traffic.carries(answers, *traffic.sender(link)) for link in cut)
    symptom, level = (SYMPTOM, FAULT) if needed else (traffic.UNUSED, WARNING)
    shown = tuple(link.describe() for link in cut[:3])
    link = (cut[0].source, cut[0].target) if len(pairs) == 1 else None
    cells = tuple(dict.fromkeys((call.source, call.target) for call in cut))
    yield find("connection-cut", hosts, text, fix, level, evidence=shown, symptom=symptom, link=link, cells=cells)


def _counts_bytes(answers: Answers, hosts: Iterable[str]) -> bool:
    """Whether a rule of one of these hosts that counts bytes has just taken packets: then loss is not the reason."""
    rules = [rule for host in hosts for rule in answers.control.get(host, {}).get("firewall", {}).get("grown", ())]
    return any(re.search(r" -m (connbytes|quota) ", rule) for rule in rules)


def _mute(answers: Answers) -> Iterator[Finding]:
    """Connections open, and all that follows the handshake vanishes: no cable does that."""
    links = [link for link in answers.links if link.outcome == "mute"]
    cells = tuple(dict.fromkeys((link.source, link.target) for link in links))
    for ends in dict.fromkeys(tuple(sorted(cell)) for cell in cells):
        mine = tuple(cell for cell in cells if set(cell) == set(ends))
        text = (
            f"{listed(ends)}: each call connects, and nothing that is sent then arrives: something takes the packets "
            "after the handshake (an inspecting firewall, a queue whose program has ended)"
        )
        evidence = tuple(link.describe() for link in links if (link.source, link.target) in mine)[:4]
        hosts = (ends[0], ends[-1])
        yield find(
            "connection-cut",
            hosts,
            text,
            f"on {listed(ends)}: sudo iptables-save | grep -i -e NFQUEUE -e DROP; sudo nft list ruleset",
            evidence=evidence,
            link=hosts,
            direction="both",
            cells=mine,
        )
