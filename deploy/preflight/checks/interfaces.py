"""Check interfaces: gloo's or NCCL's choice exists, all use one address family, addresses are unique and stay. Pure."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

from ...causes.finding import FAULT, WARNING, Finding, find
from ...causes.table import ROWS
from ...core.text import in_seconds, listed
from ...host.facts import HostFacts
from .. import prediction, remedies
from ..answers import WORDS, Answers

SLOW = 10
# A rarely used network, to suggest for a cable between hosts, which needs its own network.
_CABLE = "192.168.177"
# A DHCP client renews after half of the lease, and leases of a few minutes are rare.
_LEASE_LEAST_S = 120


def check(answers: Answers) -> Iterator[Finding]:
    """Check each chosen interface, then compare them."""
    if len(answers.facts) < 2:
        return
    yield from _unlisted(answers)
    yield from _overlap(answers)
    yield from _twice(answers)
    yield from _picked(answers)
    yield from _families(answers)
    yield from _behind(answers)
    yield from _slow(answers)
    yield from _unaddressed(answers)


def leases(every: Mapping[str, HostFacts], answers: Answers) -> Iterator[Finding]:
    """Yield warnings if the kernel will soon remove an address that the run or SSH uses.

    A DHCP client, or a router that announces its prefix again, extends the time; preflight cannot see whether it will.
    """
    for host, facts in every.items():
        used = {facts.reached_at}
        if host in answers.facts:
            used.add(answers.picks[host].address)
        for entry in facts.addresses:
            if entry.ends_s is None or entry.ends_s >= _LEASE_LEAST_S or entry.address not in used:
                continue
            text = f"the address {entry.address} of {entry.interface} expires in {in_seconds(entry.ends_s)}, unless "
            text += "its DHCP client (or a router, for IPv6) renews it"
            fix = f"on {host}: ip addr show {entry.interface}   (valid_lft must grow again); "
            fix += f"systemctl status NetworkManager systemd-networkd; or sudo dhclient {entry.interface}"
            yield find(
                "interface-no-address", host, text, fix, WARNING, symptom="all nodes hang once the address has expired"
            )


def _unlisted(answers: Answers) -> Iterator[Finding]:
    """Report hosts where no interface can be listed (netlink is forbidden): gloo and NCCL then find none."""
    for host, facts in answers.facts.items():
        if not facts["interfaces"]:
            yield find(
                "interface-missing",
                host,
                "where training runs, nothing can list the network cards, not even the loopback",
                f"on {host}: docker info | grep -i -A3 security; let the engine's seccomp profile allow AF_NETLINK",
                evidence=("getifaddrs fails there: something forbids netlink sockets",),
                symptom="gloo's `rv != -1 ... Operation not permitted`, or NCCL's `no socket interface found`",
            )


def _picked(answers: Answers) -> Iterator[Finding]:
    nccl = answers.request.by_nccl
    for host, pick in answers.picks.items():
        row = ROWS[pick.problem] if pick.problem else None
        if row is None or row.group != "interfaces":
            continue
        fix = f"on {host}: ip -br addr; give {pick.interface or 'a card'} an address"
        if pick.problem == "interface-down":
            fix = f"on {host}: sudo ip link set {pick.interface} up"
        elif good := next(prediction.reachable(answers.facts[host]), None):
            fix = remedies.use_interface(answers, host, good[0])
        have = ", ".join(answers.facts[host]["interfaces"])
        inward = bool(pick.address) and prediction.is_loopback(pick.address)
        harmless = inward and not nccl and not prediction.is_called(answers.picks, host)
        level, shown = WARNING if harmless else FAULT, (f"{pick.how}; it has {have}",)
        text, symptom = (words.format(name=pick.interface) for words in (row.what, row.symptom))
        yield find(pick.problem, (host,), f"{host} {text}", fix, level, shown, symptom)


def _families(answers: Answers) -> Iterator[Finding]:
    """gloo cannot connect an IPv4 address to an IPv6 one."""
    # If an interface is down, the kernel drops only its IPv6 addresses. Such a host has another fault and is skipped.
    versions = {
        host: prediction.parse_address(pick.address).version
        for host, pick in answers.picks.items()
        if pick.address and not pick.problem and any(prediction.reachable(answers.facts[host]))
    }
    counts = Counter(versions.values())
    if len(counts) < 2:
        return
    odd = 6 if counts[6] <= counts[4] else 4
    hosts = tuple(host for host, version in versions.items() if version == odd)
    shown = [f"{host} would use {answers.picks[host].address}: {answers.picks[host].how}" for host in versions]
    yield find(
        "family-mixed",
        hosts,
        f"{listed(hosts)} would use IPv{odd}, the others IPv{10 - odd}",
        "; ".join(_of_family(answers, host, 10 - odd) for host in hosts),
        evidence=shown,
    )


def _of_family(answers: Answers, host: str, version: int) -> str:
    """Return the fix that makes a host use an address of this family: its name gets such an address."""
    rows = [row for row in prediction.reachable(answers.facts[host]) if (":" in row[1]) == (version == 6)]
    if not rows:
        return f"on {host}: ip addr; it has no IPv{version} address"
    name = answers.facts[host]["hostname"]
    return f"on {host}: {remedies.set_name_command(name, rows[0][1])}"


def _behind(answers: Answers) -> Iterator[Finding]:
    """Report hosts whose containers have their own network: peers see an address that the container does not have."""
    for host, facts in answers.facts.items():
        own = prediction.own_addresses(facts)
        links = [link for peer in answers.facts for link in answers.between(host, peer) if link.host == peer != host]
        strange = sorted({link.seen for link in links} - {"", *own})
        if own and strange:  # `own` is empty if interfaces cannot be listed
            mine = answers.picks[host].address
            yield find(
                "bridge-network",
                (host,),
                f"{host} is behind address translation (NAT): its address is {mine}, but its peers see {strange[0]}",
            )


def _twice(answers: Answers) -> Iterator[Finding]:
    """Report hosts that have the same address. One of them uses it; another may have it only on loopback."""
    having: dict[str, list[str]] = {}
    for host, pick in answers.picks.items():
        if pick.address and not prediction.is_loopback(pick.address) and pick.problem != "link-local":
            having.setdefault(pick.address, []).append(host)
    for address, hosts in having.items():
        for host, facts in answers.facts.items():
            name = prediction.interface_of(facts, address)
            if name and host not in hosts and not prediction.is_inner(facts, name):
                hosts.append(host)
        if len(hosts) > 1:
            if len({_machine(answers, host) for host in hosts}) == 1 and answers.facts[hosts[0]].get("boot"):
                yield find(
                    "machine-twice",
                    tuple(hosts),
                    f"{listed(hosts)} are the same machine: the same boot id, the same network, the address {address}",
                )
                continue
            # On its own bridge network, Docker derives a container's hardware address (02:42:...) from its IP address.
            cards = {
                facts["interfaces"].get(prediction.interface_of(facts, address), {}).get("mac")
                for facts in map(answers.facts.__getitem__, hosts)
            }
            inner = len(cards) == 1 and str(next(iter(cards)) or "").startswith("02:42:")
            cause = "bridge-network" if inner else "duplicate-address"
            text = f"{listed(hosts)} all have the address {address}"
            yield find(cause, hosts, text, cells=tuple(itertools.permutations(hosts, 2)))


def _machine(answers: Answers, host: str) -> str:
    """Return a text that is equal for two hosts that are the same machine."""
    return f"{answers.facts[host].get('boot')} {answers.facts[host].get('namespace')}"


def _overlap(answers: Answers) -> Iterator[Finding]:
    """Report hosts whose route to a peer leads into a container network or a tunnel, where no call gets through."""
    for host, facts in answers.facts.items():
        ways = answers.listened(host, "ways")
        wrong: dict[str, list[str]] = {}
        for peer, pick in answers.picks.items():
            source = ways.get(pick.address)
            name = prediction.interface_of(facts, source) if peer != host and isinstance(source, str) else ""
            inside = name and (prediction.is_inner(facts, name) or facts["interfaces"][name].get("tunnel"))
            if inside and not any(link.ok for link in answers.between(host, peer) if link.address == pick.address):
                wrong.setdefault(name, []).append(peer)
        for name, peers in wrong.items():
            card = facts["interfaces"][name]
            own = next((f"{address}/{bits}" for address, bits in card["addresses"]), "no address")
            what = "a tunnel" if card.get("tunnel") else "a network for containers or virtual machines"
            address = answers.picks[peers[0]].address
            yield find(
                "address-overlap",
                (host,),
                f"{host} sends packets for {listed(peers)} to {name} ({own}), {what}",
                f"on {host}: ip route get {address}; give {name} another network, or remove its route",
                evidence=(f"on {host}: the route to {address} has the source {ways[address]}, an address of {name}",),
                cells=tuple(cell for peer in peers for cell in ((host, peer), (peer, host))),
            )


def _slow(answers: Answers) -> Iterator[Finding]:
    """Yield warnings for hosts with a much faster interface than the chosen one, in a network that the peers share."""
    for host, pick in answers.picks.items():
        entries = answers.facts[host]["interfaces"]
        mine = answers.card(host).get("speed", 0)
        peers = [answers.facts[other] for other in answers.hosts_with_facts if other != host]
        for name, address, _ in prediction.reachable(answers.facts[host]):
            faster = mine and entries[name]["speed"] >= SLOW * mine
            if faster and all(prediction.shares_network(peer, address) for peer in peers):
                speeds = f"{pick.interface} has {mine} Mbit/s, {name} {entries[name]['speed']}"
                yield find(
                    "interface-slow",
                    (host,),
                    f"{host} would use its slower interface",
                    remedies.use_interface(answers, host, name),
                    WARNING,
                    evidence=(speeds,),
                )


def _unaddressed(answers: Answers) -> Iterator[Finding]:
    """Yield a warning if every host has a much faster interface that is connected but has no address."""
    hosts = tuple(answers.picks)
    idle = {host: name for host in hosts if (name := _without_address(answers, host))}
    if len(hosts) > 1 and len(idle) == len(hosts):
        adds = (f"on {host}: sudo ip addr add {_CABLE}.{n}/24 dev {idle[host]}" for n, host in enumerate(hosts, 1))
        speeds = tuple(
            f"{h}: {name}, {answers.facts[h]['interfaces'][name]['speed']} Mbit/s" for h, name in idle.items()
        )
        text = f"{listed(hosts)} have a faster interface that nothing uses, because it has no address: {listed(speeds)}"
        yield find("interface-slow", hosts, text, "; ".join(adds), WARNING, evidence=speeds)


def _without_address(answers: Answers, host: str) -> str:
    """Return a host's fastest connected interface without an address, if it is much faster than the chosen one.

    An interface that is part of a bond or bridge shares its hardware address with that, and does not count.
    """
    entries = answers.facts[host]["interfaces"]
    mine, macs = answers.card(host), Counter(each.get("mac") for each in entries.values())
    alone = {
        name: entry["speed"]
        for name, entry in entries.items()
        if entry["running"] and not entry.get("tunnel") and not prediction.is_inner(answers.facts[host], name)
        if macs[entry.get("mac")] == 1 and all(address.startswith("fe80:") for address, _ in entry["addresses"])
    }
    fastest = max(alone, key=lambda name: alone[name], default="")
    # An interface that NCCL uses by RDMA needs no address (checks/rdma.py).
    slower = 0 < SLOW * mine.get("speed", 0) <= alone.get(fastest, 0)
    return fastest if slower and not answers.facts[host].get("rdma") else ""


def check_cards(answers: Answers) -> Iterator[Finding]:
    """Check for a loopback interface that is down or blocked, then for duplicate hardware addresses."""
    for host, facts in answers.facts.items():
        off = [name for name, entry in facts["interfaces"].items() if entry["loopback"] and not entry["up"]]
        if off:
            yield find(
                "interface-down",
                (host,),
                f"on {host}, the loopback interface {off[0]} is down, so the host cannot even reach itself",
                f"on {host}: sudo ip link set {off[0]} up",
                FAULT if _calls_itself(answers, host) else WARNING,
                symptom="`The client socket has timed out` on the rendezvous host itself",
            )
        # If the peers cannot reach its ports either, its firewall closes them to all, which another check reports.
        reached = any(link.ok for peer in answers.facts if peer != host for link in answers.between(peer, host, "data"))
        silent = [link for link in answers.between(host, host, "self") if not link.ok] if not off and reached else []
        if silent:
            yield find(
                "loopback-silent",
                (host,),
                f"{host} cannot reach itself: {silent[0].address} {WORDS.get(silent[0].outcome, silent[0].outcome)}",
                f"on {host}: {remedies.let_itself()}   (see: ip addr show lo)",
                FAULT if _calls_itself(answers, host) else WARNING,
                evidence=[link.describe() for link in silent],
            )
    yield from _cards_of_one_address(answers)


def _calls_itself(answers: Answers, host: str) -> bool:
    """Whether a run has a connection inside this host: to its own rendezvous, or between two of its ranks."""
    return host == answers.rendezvous_host or answers.request.processes > 1


def _cards_of_one_address(answers: Answers) -> Iterator[Finding]:
    having: dict[str, dict[str, str]] = {}
    for host in answers.picks:
        card = answers.card(host).get("mac", "")
        if card.strip("0:"):
            # A machine that the user lists twice has one card; another check reports that.
            having.setdefault(card, {})[_machine(answers, host)] = host
    for card, machines in having.items():
        hosts = tuple(machines.values())
        near = prediction.shares_network(answers.facts[hosts[0]], answers.picks[hosts[-1]].address or "0.0.0.0")
        if len(hosts) > 1 and near:
            name = answers.picks[hosts[-1]].interface
            fix = f"on {hosts[-1]}: sudo ip link set dev {name} address {_another(hosts[-1])}"
            fix += "   (if it is a virtual machine: clone it with a new address)"
            yield find(
                "duplicate-mac",
                hosts,
                f"{listed(hosts)} have the same hardware address {card}: the switch sends packets to one or the other",
                fix,
            )


def _another(host: str) -> str:
    """Return a locally administered hardware address (02:...) that is unique to the host."""
    return ":".join(["02", *(f"{byte:02x}" for byte in hashlib.sha256(host.encode()).digest()[:5])])
