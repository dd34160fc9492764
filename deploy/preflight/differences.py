"""What differs between hosts that should be alike, apart from what may differ. Pure.

A difference is evidence for whatever fails. Alone it is not a fault: a check has to know that it breaks a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.text import listed
from .answers import Answers
from .findings import odd_ones

# Variables that belong to one host. What a host has of its own (name, addresses, cores, memory, space, names of cards)
# is not compared at all.
MAY_DIFFER = ("SOCKET_IFNAME", "NODE_RANK", "LOCAL_ADDR", "RDZV_CONF", "CUDA_VISIBLE_DEVICES", "NPROC_PER_NODE")
LIMITS = ("nofile", "memlock", "fsize", "cpu", "as", "data", "stack", "nproc")
MOST = 6


def lines(answers: Answers) -> tuple[str, ...]:
    """A line for each thing that differs, the rarest value named by its hosts."""
    if len(answers.hosts_with_facts) < 2:
        return ()
    seen: dict[str, dict[str, str]] = {}
    for host in answers.hosts_with_facts:
        for what, value in _comparable(answers, host):
            seen.setdefault(what, {})[host] = value
    shown = []
    for what, values in seen.items():
        if len(set(values.values())) < 2 or len(values) < len(answers.hosts_with_facts):
            continue
        odd = odd_ones(values)
        common = Counter(values.values()).most_common(1)[0][0]
        theirs = listed(f"{host} has {values[host]}" for host in odd)
        shown.append(f"{what}: {theirs}" + (f", the others {common}" if len(odd) < len(values) else ""))
    return tuple(shown[:MOST])


def _comparable(answers: Answers, host: str) -> Iterator[tuple[str, str]]:
    facts: Mapping[str, Any] = answers.facts[host]
    for name in ("kernel", "machine", "user"):
        yield name, str(facts.get(name, ""))
    for name, value in facts["software"].items():
        if isinstance(value, str):
            yield name, value
    yield "local ports", "-".join(map(str, facts["port_range"]))
    interface = facts["interfaces"].get(answers.plan.data[host].interface, {})
    yield "packet size (MTU)", str(interface.get("mtu", ""))
    limits = facts["resources"]
    for name in LIMITS:
        if name in limits:
            yield f"limit {name}", "none" if limits[name][0] < 0 else str(limits[name][0])
    for path, room in limits["disk"].items():
        if "writable" in room:
            yield f"{path} can be written to", "yes" if room["writable"] else "no"
    for path, may in facts.get("mounts", {}).items():
        holds = {"f": ", a file", "e": ", empty"}.get(may[-1:], "")
        yield f"mount {path}", (may.rstrip("ofe") or "closed") + holds
    for name, value in sorted(facts.get("environment", {}).items()):
        if not name.endswith(MAY_DIFFER):
            yield f"variable {name}", value
