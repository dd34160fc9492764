"""Network cards: loopback is down, or two cards have one hardware address. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from .. import prediction
from ..answers import Answers
from ..findings import Finding, listed


def check(answers: Answers) -> Iterator[Finding]:
    """Each host for itself, then the cards that training will use against each other."""
    for host in answers.hosts_with_facts:
        entries = answers.facts[host]["interfaces"]
        off = [name for name, entry in entries.items() if entry["loopback"] and not entry["up"]]
        if off:
            text = f"{host} has its loopback interface {off[0]} down: it does not even reach itself"
            symptom = "`The client socket has timed out` on the very host that the rendezvous is on"
            yield Finding(
                "interface-down", "interfaces", (host,), text, (), symptom, f"on {host}: sudo ip link set {off[0]} up"
            )
    yield from _twins(answers)


def _twins(answers: Answers) -> Iterator[Finding]:
    having: dict[str, dict[str, str]] = {}
    for host, pick in answers.plan.data.items():
        facts = answers.facts[host]
        card = facts["interfaces"].get(pick.interface, {}).get("mac", "")
        if card.strip("0:"):
            # The same machine twice in the list of hosts has one card, and that is another matter.
            having.setdefault(card, {})[f"{facts.get('boot')} {facts.get('namespace')}"] = host
    for card, machines in having.items():
        hosts = tuple(machines.values())
        near = prediction.shares_network(answers.facts[hosts[0]], answers.plan.data[hosts[-1]].address or "0.0.0.0")
        if len(hosts) > 1 and near:
            text = (
                f"{listed(hosts)} have the same hardware address {card}: the switch sends now to one, now to the other"
            )
            symptom = "connections that stand still, or come and go, between hosts that are well"
            card_of = answers.plan.data[hosts[-1]].interface
            fix = (
                f"on {hosts[-1]}: sudo ip link set dev {card_of} address <another>; or clone the machine with a new one"
            )
            yield Finding("duplicate-mac", "interfaces", hosts, text, (), symptom, fix)
