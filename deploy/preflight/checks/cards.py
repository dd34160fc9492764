"""Network cards: loopback is down, or two cards have the same hardware address. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from ...causes.finding import FAULT, WARNING, Finding, find
from ...core.text import listed
from .. import prediction, remedies
from ..answers import WORDS, Answers


def check(answers: Answers) -> Iterator[Finding]:
    """Check each host, then compare the cards that training will use."""
    for host in answers.hosts_with_facts:
        entries = answers.facts[host]["interfaces"]
        off = [name for name, entry in entries.items() if entry["loopback"] and not entry["up"]]
        if off:
            level = FAULT if _calls_itself(answers, host) else WARNING
            yield find(
                "interface-down",
                (host,),
                f"{host} has its loopback interface {off[0]} down, so it cannot even reach itself",
                f"on {host}: sudo ip link set {off[0]} up",
                level,
                symptom="`The client socket has timed out` on the host of the rendezvous itself",
            )
        # Where its peers do not reach its ports either, a firewall closes them to everybody.
        reached = any(link.ok and link.target == host != link.source and "data" in link.kinds for link in answers.links)
        silent = [link for link in answers.between(host, host, "self") if not link.ok] if not off and reached else []
        if silent:
            grave = _calls_itself(answers, host)
            yield find(
                "loopback-silent",
                (host,),
                f"{host} does not reach itself: {silent[0].address} {WORDS.get(silent[0].outcome, silent[0].outcome)}",
                f"on {host}: {remedies.let_itself()}   (see: ip addr show lo)",
                FAULT if grave else WARNING,
                evidence=tuple(link.describe() for link in silent),
            )
    yield from _twins(answers)


def _calls_itself(answers: Answers, host: str) -> bool:
    """Whether a run has a connection inside this host: to its own rendezvous, or between two of its ranks."""
    return host == answers.meeting or answers.request.processes > 1


def _twins(answers: Answers) -> Iterator[Finding]:
    having: dict[str, dict[str, str]] = {}
    for host, pick in answers.plan.data.items():
        facts = answers.facts[host]
        card = facts["interfaces"].get(pick.interface, {}).get("mac", "")
        if card.strip("0:"):
            # A machine that the user lists twice has one card; another check reports that.
            having.setdefault(card, {})[f"{facts.get('boot')} {facts.get('namespace')}"] = host
    for card, machines in having.items():
        hosts = tuple(machines.values())
        near = prediction.shares_network(answers.facts[hosts[0]], answers.plan.data[hosts[-1]].address or "0.0.0.0")
        if len(hosts) > 1 and near:
            name = answers.plan.data[hosts[-1]].interface
            fix = f"on {hosts[-1]}: sudo ip link set dev {name} address {_another(hosts[-1])}"
            fix += "   (a virtual machine: clone it with a new address)"
            yield find(
                "duplicate-mac",
                hosts,
                f"{listed(hosts)} have the same hardware address {card}: the switch sends packets to either",
                fix,
            )


def _another(host: str) -> str:
    """A hardware address that is local (02:...) and a host's own."""
    return ":".join(["02", *(f"{byte:02x}" for byte in hashlib.sha256(host.encode()).digest()[:5])])
