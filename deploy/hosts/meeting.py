"""Where the nodes of a run meet: the rendezvous's address and port, and the interface of each host, by its routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..config.inventory import Host
from ..host.facts import HostFacts
from ..ssh.session import Session
from . import container, observe, plan
from .container import Meeting


def choose(
    hosts: Sequence[Host], sessions: Sequence[Session], facts: Sequence[HostFacts], try_links: bool
) -> tuple[Meeting, tuple[str, ...]]:
    """The meeting of a run on these hosts, and the address that each of them has there; `facts` in the hosts' order.

    Raises DeployError if a host has no route to its peers; try_links also tests that they reach each other.
    """
    address = plan.choose_address(facts, hosts[0].interface)
    # The first host's route leads to a peer, or to itself if it is alone.
    first_peer = facts[1].reached_at if len(facts) > 1 and facts[1].addresses else address
    peer_addresses = [entry.address for entry in facts[1].addresses] if len(facts) > 1 else []
    peers = {host.name: address for host in hosts}
    peers[hosts[0].name] = first_peer if first_peer in peer_addresses or not peer_addresses else peer_addresses[0]
    routes = observe.routes(sessions, peers).all()
    used = [routes[host.name] for host in hosts]
    if used[0].interface == "lo":
        used[0] = replace(used[0], interface=next(a.interface for a in facts[0].addresses if a.address == address))
    port = plan.choose_port(facts[0])
    # Preflight tests this better, but it cannot run on hosts that have neither the image nor a Python.
    if len(hosts) > 1 and try_links:
        toward = {host.name: [address] for host in hosts} | {hosts[0].name: [way.source for way in used[1:]]}
        observe.refuse_unreached(sessions, toward, port)
    return container.meeting_of(hosts, address, port, used), (address, *(way.source for way in used[1:]))
