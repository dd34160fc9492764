"""Connections that carry little data but not much: something counts bytes, or breaks large segments. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..answers import Answers
from ..findings import Finding, listed
from .links import with_rules


def check(answers: Answers) -> Iterator[Finding]:
    """The large payloads that hosts sent each other after all small calls succeeded."""
    cut = [link for link in answers.links if "long" in link.kinds and not link.ok]
    if not cut:
        return
    common = tuple(host for host in answers.hosts_with_facts if all(host in (link.source, link.target) for link in cut))
    ends = common if len(common) == 1 else (cut[0].source, cut[0].target)
    hosts = with_rules(answers, sorted({host for link in cut for host in (link.source, link.target)})) or ends
    text = f"between {cut[0].source} and {cut[0].target} small payloads pass, but {cut[0].size >> 20} MB stop half-way"
    fix = f"on {listed(hosts)}: sudo iptables -vnL (quota, connbytes); ethtool -K <interface> tso off gro off"
    symptom = "rendezvous and init pass; the first large all_reduce hangs until the timeout (30 min)"
    shown = tuple(link.describe() for link in cut[:3])
    yield Finding("connection-cut", "links", hosts, text, shown, symptom, fix, link=(cut[0].source, cut[0].target))
