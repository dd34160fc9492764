"""Predict which addresses torch, gloo and NCCL will pick, and which host will consider itself the endpoint. Pure.

The rules are from the sources of torch 2.13 (elastic/rendezvous: c10d_rendezvous_backend.py, utils.py,
dynamic_rendezvous.py; c10d: TCPStore, ProcessGroupGloo), gloo (transport/tcp/device.cc, pair.cc) and NCCL 2.30.7
(misc/socket.cc).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..host.facts import INNER
from .request import MPI, MUSTER, SLURM, Facts, PreflightRequest


@dataclass(frozen=True)
class Pick:
    """An address that will be picked; `how`: by which rule, in words; `problem`: a cause's slug if it cannot work."""

    address: str
    interface: str
    how: str
    problem: str = ""


@dataclass(frozen=True)
class Plan:
    """What torch will do: the endpoint; the hosts that consider themselves its host (`owners`); the host with rank 0
    (`first`) and the name at which its store is called; and each host's address for data."""

    endpoint: str
    owners: tuple[str, ...]
    first: str
    store_name: str
    data: Mapping[str, Pick]


def plan(request: PreflightRequest, facts: Mapping[str, Facts], routes: Mapping[str, Facts]) -> Plan:
    """Return the plan for these hosts, in order; the first is the master.

    `routes`: for each host, the source address that it uses toward an address.
    """
    hosts = list(facts)
    endpoint, given = request.endpoint or _endpoint(request, facts), dict[str, dict[str, str]]()
    owners, first, name = tuple(hosts[:1]), next(iter(hosts), ""), endpoint
    if request.style == MUSTER:
        given = {host: _muster_variables(facts[host], routes.get(host, {}), endpoint) for host in hosts}
        given |= {host: _named(name) for host, name in request.interfaces.items() if host in given}
    elif request.by_c10d:
        owners = tuple(host for host in hosts if considers_itself_endpoint(facts[host], endpoint))
        # torchrun orders the ranks by the agents' addresses as strings: socket.getfqdn(), unless --local-addr is given.
        names = {host: str(facts[host].get("fqdn") or "") for host in hosts}
        first = min(names, key=names.__getitem__, default="")
        name = names.get(first, "")
    data = {}
    for host in hosts:
        variables = {**given.get(host, {}), **facts[host].get("environment", {}), **request.environment}
        data[host] = (nccl_pick if request.by_nccl else gloo_pick)(facts[host], variables)
    return Plan(endpoint, owners, first, name, data)


def _endpoint(request: PreflightRequest, facts: Mapping[str, Facts]) -> str:
    """Return the default endpoint. Scripts for Slurm and MPI set MASTER_ADDR to the first host's name."""
    first: Facts = next(iter(facts.values()), {})
    return str(first.get("hostname", "")) if request.style in (SLURM, MPI) else meeting_address(facts)


def gloo_pick(facts: Facts, variables: Mapping[str, str]) -> Pick:
    """ProcessGroupGloo picks the first address of GLOO_SOCKET_IFNAME; else the first address of the host's own name
    that it can bind; else loopback."""
    name = variables.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if name:
        return _first_of(facts, name, f"GLOO_SOCKET_IFNAME={name}")
    host = str(facts["hostname"])
    rows = facts.get("names", {}).get(host)
    if not isinstance(rows, list):
        return Pick("127.0.0.1", "lo", f"the host's own name {host} does not resolve", "name-unresolvable")
    for address, own, _ in rows:
        if own:
            problem = "name-loopback" if is_loopback(address) else ""
            problem = "link-local" if parse_address(address).is_link_local else problem
            return Pick(address, interface_of(facts, address), f"the host's own name {host}", problem)
    return Pick("127.0.0.1", "lo", f"the host's own name {host} is an address of no interface here", "name-foreign")


def nccl_pick(facts: Facts, variables: Mapping[str, str]) -> Pick:
    """NCCL's bootstrap picks the first interface that NCCL_SOCKET_IFNAME allows; else ib*, else any interface that is
    not docker*, lo* or virbr*, else docker*, lo*, virbr*."""
    rule = variables.get("NCCL_SOCKET_IFNAME", "")
    usable = [name for name, entry in facts["interfaces"].items() if entry["up"] and entry["running"]]
    family = variables.get("NCCL_SOCKET_FAMILY", "")
    if rule:
        names = [name for name in usable if rule_allows(rule, name)]
        how = f"NCCL_SOCKET_IFNAME={rule}"
        if not names:
            return Pick("", "", how, "interface-missing")
        return _first_of(facts, names[0], how, family)
    for name in sorted(usable, key=_nccl_place):
        picked = _first_of(facts, name, "NCCL takes the first interface that is not docker*, lo*, virbr*", family)
        if picked.address:
            return replace(picked, problem="container-bridge" if is_inner(facts, name) else picked.problem)
    return Pick("", "", "NCCL finds no interface", "interface-missing")


def _nccl_place(name: str) -> int:
    """Return the place of an interface name in NCCL's order if no variable is set: 0 comes first, then 1, and so on."""
    if name.startswith("ib"):
        return 0
    return 1 + next((place for place, begin in enumerate(("docker", "lo", "virbr"), 1) if name.startswith(begin)), 0)


def rule_allows(rule: str, name: str) -> bool:
    """Whether NCCL_SOCKET_IFNAME allows an interface. It lists prefixes; leading `^`: exclude, `=`: exact names."""
    exclude, exact = rule.startswith("^"), "=" in rule[:2]
    names = rule.lstrip("^=").split(",")
    match = any(name == pattern if exact else name.startswith(pattern) for pattern in names if pattern)
    return match != exclude


def considers_itself_endpoint(facts: Facts, endpoint: str) -> bool | None:
    """Whether a node will host the rendezvous (torch's _matches_machine_hostname); None if torch would raise."""
    if endpoint == "localhost" or is_loopback(endpoint) or endpoint == facts["hostname"]:
        return True
    own = facts.get("names", {}).get(facts["hostname"])
    if not isinstance(own, list):
        return None
    theirs = set(addresses_of(facts, endpoint) or ())
    return any(canonical == endpoint or address in theirs for address, _, canonical in own)


def addresses_of(facts: Facts, name: str) -> list[str] | None:
    """Return the addresses of a name, or of an address itself, on a host; None if it does not resolve there."""
    if is_address(name):
        return [name]
    rows = facts.get("names", {}).get(name)
    return list(dict.fromkeys(row[0] for row in rows)) if isinstance(rows, list) else None


def meeting_address(facts: Mapping[str, Facts]) -> str:
    """Return the master's address in a network that all hosts share, IPv4 preferred; else its first address."""
    own = [list(reachable(entry)) for entry in facts.values()]
    if not own or not own[0]:
        return ""
    taken = {address for peer in own[1:] for _, address, _ in peer}
    mine = sorted((row for row in own[0] if row[1] not in taken), key=lambda row: ":" in row[1]) or own[0]
    for _, address, prefix in mine:
        if all(any(same_network(address, prefix, other) for _, other, _ in peer) for peer in own[1:]):
            return address
    return mine[0][1]


def reachable(facts: Facts) -> Iterator[tuple[str, str, int]]:
    """Yield interface, address and prefix for each address that a peer may reach.

    That excludes loopback and link-local addresses and container networks.
    """
    for name, entry in facts["interfaces"].items():
        if entry["loopback"] or not entry["up"] or is_inner(facts, name):
            continue
        for address, prefix in entry["addresses"]:
            if not ipaddress.ip_address(address).is_link_local:
                yield name, address, prefix


def is_inner(facts: Facts, name: str) -> bool:
    """Whether an interface leads only to containers or virtual machines; a bridge with a network card leads outside."""
    entry = facts["interfaces"].get(name, {})
    cards = [port for port in entry.get("ports", ()) if not port.startswith((*INNER, "vnet", "tap"))]
    return name.startswith(INNER) or (bool(entry.get("bridge")) and not cards)


def own_addresses(facts: Facts) -> set[str]:
    """Return all addresses of a host."""
    return {address for entry in facts["interfaces"].values() for address, _ in entry["addresses"]}


def interface_of(facts: Facts, address: str) -> str:
    """Return the interface that has an address, or an empty name.

    Several may have it (kube-proxy's interface has the addresses of its services): one that is up is preferred.
    """
    having = [
        (not entry["up"], number, str(name))
        for number, (name, entry) in enumerate(facts["interfaces"].items())
        if any(address.partition("%")[0] == own for own, _ in entry["addresses"])
    ]
    return min(having)[2] if having else ""


def same_network(address: str, prefix: int, other: str) -> bool:
    """Whether `other` is reached from `address/prefix` without a gateway."""
    return ipaddress.ip_address(other) in network_of(address, prefix)


def network_of(address: str, prefix: int) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return the network of an interface's address."""
    return ipaddress.ip_interface(f"{address}/{prefix}").network


def parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address without its zone. Raises ValueError."""
    return ipaddress.ip_address(address.partition("%")[0])


def shares_network(facts: Facts, address: str) -> bool:
    """Whether a host has an address in the same network as `address`."""
    return any(same_network(own, prefix, address) for _, own, prefix in reachable(facts))


def connects(mine: str, theirs: str) -> bool:
    """Whether gloo opens the connection from this side: the larger address calls the smaller one."""
    address, other = parse_address(mine), parse_address(theirs)
    return address.version != other.version or int(address) > int(other)


def is_called(data: Mapping[str, Pick], host: str) -> bool:
    """Whether any peer opens gloo's connection to this host. True if an address is unknown, or both have the same."""
    mine = data[host].address
    peers = [pick.address for name, pick in data.items() if name != host]
    return not mine or any(not peer or peer == mine or connects(peer, mine) for peer in peers)


def is_address(name: str) -> bool:
    """Whether this is an IP literal."""
    try:
        parse_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether this is an address of the loopback interface."""
    return is_address(name) and parse_address(name).is_loopback


def _first_of(facts: Facts, interface: str, how: str, family: str = "") -> Pick:
    entry = facts["interfaces"].get(interface)
    if entry is None:
        return Pick("", interface, how, "interface-missing")
    wanted = {"AF_INET": 4, "AF_INET6": 6}.get(family)
    addresses = [a for a, _ in entry["addresses"] if wanted in (None, ipaddress.ip_address(a).version)]
    if not addresses:
        return Pick("", interface, how, "interface-no-address")
    address = addresses[0]
    problem = "" if entry["up"] else "interface-down"
    if ipaddress.ip_address(address).is_link_local and ":" in address:
        problem = "link-local"
    if is_loopback(address):
        problem = "interface-loopback"
    return Pick(address, interface, how, problem)


def _muster_variables(facts: Facts, routes: Facts, endpoint: str) -> dict[str, str]:
    """Return the variables that hosts/node/container.py gives a node: the interface that leads to its peers."""
    ways = [source for to, source in routes.items() if isinstance(source, str) and not is_loopback(source)]
    own = interface_of(facts, endpoint) if is_address(endpoint) else ""
    name = own or next((interface for source in ways if (interface := interface_of(facts, source))), "")
    name = name or next((interface for interface, _, _ in reachable(facts)), "")
    name = name or next((interface for interface, entry in facts["interfaces"].items() if not entry["loopback"]), "")
    return _named(name) if name else {}


def _named(interface: str) -> dict[str, str]:
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
