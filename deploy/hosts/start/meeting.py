"""Where a run's nodes meet: the rendezvous address and port, and each host's interface, chosen by its routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...host.facts import HostFacts, Route
from ...host.reached import ReachedHosts
from ..node import container
from ..node.container import Meeting
from . import observe, plan


def choose_meeting(
    reached: ReachedHosts, try_links: bool, interfaces: Mapping[str, str] | None = None
) -> tuple[Meeting, tuple[str, ...]]:
    """Return the meeting of a run on these hosts, and the address that each host has there.

    interfaces: by host, the interface to the network that preflight chose; without it, the routes decide. Raises
    DeployError if a host has no route to its peers; try_links also tests whether they reach each other.
    """
    hosts, facts, sessions = reached.cluster.hosts, reached.in_order, reached.sessions
    if interfaces:
        ways = [_first_of(fact, interfaces[host.name]) for host, fact in zip(hosts, facts, strict=True)]
        met = container.meeting_of(hosts, ways[0].source, plan.choose_port(facts[0]), ways)
        return met, tuple(way.source for way in ways)
    address = plan.choose_address(facts, hosts[0].interface)
    own = next(entry for entry in facts[0].addresses if entry.address == address)
    # The first host's route leads to a peer, in the network where they meet; or to itself if it is the only host.
    peer = facts[:2][-1]
    nearest = min(
        peer.addresses,
        key=lambda entry: (not own.shares_network(entry), entry.address != peer.reached_at),
        default=own,
    )
    peers = {host.name: address for host in hosts} | {hosts[0].name: nearest.address}
    routes = observe.routes(sessions, peers).all()
    used = [routes[host.name] for host in hosts]
    if used[0].interface == "lo":
        used[0] = replace(used[0], interface=own.interface)
    port = plan.choose_port(facts[0])
    # Preflight tests this better, but it cannot run on hosts that have neither the image nor Python.
    if len(hosts) > 1 and try_links:
        toward = {host.name: [address] for host in hosts} | {hosts[0].name: [way.source for way in used[1:]]}
        observe.refuse_unreached(sessions, toward, port)
    return container.meeting_of(hosts, address, port, used), (address, *(way.source for way in used[1:]))


def shares_several_networks(facts: Sequence[HostFacts]) -> bool:
    """Whether the first host shares more than one network with other hosts, so that preflight may choose one."""
    first, *peers = facts
    theirs = [address for peer in peers for address in peer.addresses]
    foreign = {address.address for address in theirs}
    shared = [own for own in first.addresses if any(own.shares_network(other) for other in theirs)]
    return len({own.interface for own in shared if own.address not in foreign}) > 1


def _first_of(facts: HostFacts, interface: str) -> Route:
    """The route through an interface, from its first address: gloo and NCCL use that address."""
    return Route(interface, next(entry.address for entry in facts.addresses if entry.interface == interface))
