"""Plans the run's own network (--overlay): its name, addresses and port, and how each host's packets travel. Pure.

It also decides which pairs of hosts connect directly and which through a third host, and plans the container at each
end. docs/decisions/0106 gives the reasons.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network

from ...core.errors import DeployError, UsageError
from ...core.formats import LABELS
from ...core.names import NODE_PROGRAMS
from ...core.results import Results
from ...core.text import listed
from ...host.facts import Address, HostFacts
from ...host.networks import Networks
from ...job.cluster import Cluster
from ...job.options import FLAG, Job
from . import container
from .container import NodeContainer, Work
from .docker_run import DockerRun

Pair = frozenset[str]
PORTS = range(51820, 51920)
# A home or a company rarely uses all of 10/8; if it does, the other blocks are tried.
_BLOCKS = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
_PREFIX, _MOST_HOSTS = 24, 250
# Bytes for IPv6, UDP and WireGuard's header and tag; for a relayed packet, the same again over the run's IPv4 network.
_OVERHEAD, _RELAYED, _MOST_MTU = 80, 60, 1420
# The packet size that every host on the internet accepts (RFC 791), wrapped twice by this network.
_LEAST_MTU = 576 + _OVERHEAD + _RELAYED
# The most addresses to try for a peer: each one that does not answer costs a few seconds.
_MOST_WAYS = 4
_LIMITS = ("--memory", "512m", "--pids-limit", "256", "--ulimit", "core=0:0")


@dataclass(frozen=True)
class Overlay:
    """One network: its interface and UDP port, the same on every host; its MTU in bytes; the hosts' addresses by name.

    `ways`: for each host and peer, the addresses on existing networks at which the peer may answer.
    """

    interface: str
    socket: str
    prefix: int
    port: int
    mtu: int
    addresses: Mapping[str, str]
    ways: Mapping[tuple[str, str], tuple[str, ...]]

    @property
    def relayed_mtu(self) -> int:
        """The MTU for packets that a third host relays: they travel inside packets of this network."""
        return self.mtu - _RELAYED

    def on(self, facts: Mapping[str, HostFacts]) -> dict[str, HostFacts]:
        """The hosts' facts as they will be once this network exists."""
        return {
            host: replace(fact, addresses=(*fact.addresses, Address(self.interface, self.addresses[host], self.prefix)))
            for host, fact in facts.items()
        }


def asked(cluster: Cluster, token: str) -> Cluster:
    """Return the cluster whose hosts meet on a network that does not exist yet; unchanged if the job wants none.

    Raises UsageError if the hosts cannot have a network of the run's own.
    """
    if not cluster.job.overlay:
        return cluster
    if len(cluster.hosts) < 2:
        raise UsageError(f"{FLAG.overlay}: a single host needs no network", "leave it out")
    if len(cluster.hosts) > _MOST_HOSTS:
        raise UsageError(f"{FLAG.overlay}: more than {_MOST_HOSTS} hosts", "use fewer hosts")
    if named := next((host.name for host in cluster.hosts if host.interface), ""):
        raise UsageError(f"{FLAG.overlay}: {named} has its own interface in cluster.toml", "leave out one of the two")
    interface = interface_of(token)
    return replace(cluster, hosts=tuple(replace(host, interface=interface) for host in cluster.hosts))


def interface_of(token: str) -> str:
    """The interface's name on every host. It differs between two runs on one host; Linux allows 15 characters."""
    return f"muster{token[:8]}"


def planned(token: str, looks: Mapping[str, Networks], facts: Mapping[str, HostFacts]) -> Overlay:
    """The network for the start with this token. Raises DeployError if a host cannot have one, or nothing is free."""
    no_tun = DeployError(
        f"no /dev/net/tun, which {FLAG.overlay} needs",
        "on that host: sudo modprobe tun; in a virtual machine, allow TUN",
    )
    Results({host: look if look.tun else no_tun for host, look in looks.items()}).all()
    busy = frozenset[int]().union(*(look.udp for look in looks.values()))
    port = next((port for port in PORTS if port not in busy), 0)
    if not port:
        raise DeployError(
            f"on some host, all UDP ports from {PORTS.start} to {PORTS.stop - 1} are in use", "end one of them"
        )
    network = free_network(token, {route for look in looks.values() for route in look.routes})
    addresses = dict(zip(looks, map(str, network.hosts()), strict=False))
    uses = {(host, address.interface) for host, fact in facts.items() for address in fact.addresses}
    least, where = min(
        ((looks[host].mtus.get(name, 1500), f"{host}: {name}") for host, name in uses), default=(1500, "")
    )
    if least < _LEAST_MTU:
        raise DeployError(f"{where} accepts packets of only {least} bytes", "on that host: ip link")
    mtu = min(_MOST_MTU, least - _OVERHEAD)
    return Overlay(
        interface_of(token), f"muster-overlay-{token}", _PREFIX, port, mtu, addresses, candidate_addresses(facts)
    )


def free_network(token: str, taken: Iterable[IPv4Network]) -> IPv4Network:
    """A network that no host uses; the token decides which one. Raises DeployError if there is none."""
    taken = tuple(taken)
    for block in _BLOCKS:
        free = [part for part in _rest(block, taken) if part.prefixlen <= _PREFIX]
        counts = [1 << (_PREFIX - part.prefixlen) for part in free]
        number = int(token[:8], 16) % max(1, sum(counts))
        for part, count in zip(free, counts, strict=True):
            if number < count:
                return IPv4Network((int(part.network_address) + (number << (32 - _PREFIX)), _PREFIX))
            number -= count
    raise DeployError(f"the hosts' networks leave no private addresses for {FLAG.overlay}", "on a host: ip route")


def _rest(block: IPv4Network, taken: Iterable[IPv4Network]) -> list[IPv4Network]:
    """The parts of a block that these networks leave free, in order."""
    rest = [block]
    for other in taken:
        apart = [part for part in rest if not part.overlaps(other)]
        inside = [part for part in rest if other.subnet_of(part)]
        rest = [*apart, *(piece for part in inside for piece in part.address_exclude(other))]
    return sorted(rest)


def candidate_addresses(facts: Mapping[str, HostFacts]) -> dict[tuple[str, str], tuple[str, ...]]:
    """For each host and peer: the addresses of the peer that this host should try, the likely ones first.

    An address that several hosts have (for example, an engine's bridge) leads to no peer.
    """
    owners = Counter(address for fact in facts.values() for address in {entry.address for entry in fact.addresses})
    by_pair = {}
    for host, fact in facts.items():
        for peer, theirs in facts.items():
            if peer != host:
                shared = {
                    entry.address
                    for entry in theirs.addresses
                    if any(own.shares_network(entry) for own in _of(fact, entry))
                }
                known = [entry.address for entry in theirs.addresses if owners[entry.address] == 1]
                known = list(dict.fromkeys([*known, *_public(theirs.reached_at), *_public(theirs.called_at)]))
                reached = (theirs.called_at, theirs.reached_at)
                ranked = sorted(known, key=lambda text: (text not in shared, text not in reached, ":" in text))
                by_pair[host, peer] = tuple(ranked[:_MOST_WAYS])
    return by_pair


def turns(hosts: Sequence[str], ways: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[dict[tuple[str, str], str]]:
    """What to try in each turn: an address of the peer, by caller and peer. In no turn do two hosts call each other."""
    pairs = list(itertools.combinations(hosts, 2))
    for number in range(_MOST_WAYS):
        for callers in (pairs, [(other, first) for first, other in pairs]):
            turn = {pair: ways[pair][number] for pair in callers if len(ways[pair]) > number}
            if turn:
                yield turn


def _of(fact: HostFacts, other: Address) -> Iterator[Address]:
    """The host's addresses of the same IP family as `other`."""
    return (own for own in fact.addresses if (":" in own.address) == (":" in other.address))


def _public(reached_at: str) -> Iterator[str]:
    """The address that SSH reached, unless it is one that only this machine can use (loopback, link-local)."""
    try:
        address = ipaddress.ip_address(reached_at)
    except ValueError:
        return
    if not address.is_loopback and not address.is_link_local:
        yield str(address)


def endpoint(address: str, port: int) -> str:
    """An address and port in the form that `wg` uses."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def relays(hosts: Sequence[str], met: frozenset[Pair], port: int) -> dict[Pair, str]:
    """For each pair that does not meet, choose a host that meets both and relays few pairs so far.

    Raises DeployError for pairs that no host can connect.
    """
    apart = [frozenset((first, other)) for at, first in enumerate(hosts) for other in hosts[at + 1 :]]
    apart = [pair for pair in apart if pair not in met]
    chosen: dict[Pair, str] = {}
    for pair in apart:
        load = Counter(chosen.values())
        between = [host for host in hosts if host not in pair and all(frozenset((host, end)) in met for end in pair)]
        if between:
            chosen[pair] = min(between, key=lambda host: load[host])
    if lost := [" with ".join(sorted(pair, key=list(hosts).index)) for pair in apart if pair not in chosen]:
        words = f"{FLAG.overlay}: no UDP packet passes between hosts: {listed(lost)}"
        raise DeployError(
            f"{words}; and no other host reaches both ends",
            f"allow UDP {port} between them, or between each of them and one other host",
        )
    return chosen


def run_of(node: NodeContainer, uid: str, work: Work, overlay: Overlay) -> DockerRun:
    """The container next to the node that holds the network's end on that host.

    It is the exception in docs/explanation/security.md: it runs as root, with only the right to make an interface.
    """
    labels = {"muster.format": str(LABELS), "muster.overlay": work.token, "muster.start": node.start}
    options = (
        *("--network", "host", "--init", "--no-healthcheck", "--user", "0:0", "--device", "/dev/net/tun"),
        *("--cap-drop", "ALL", "--cap-add", "NET_ADMIN", "--security-opt", "no-new-privileges"),
        *("--read-only", "--tmpfs", "/var/run/wireguard:size=4m,mode=0700", *_LIMITS, *container.LOG_LIMITS),
    )
    command = ("-P", "-m", NODE_PROGRAMS, "overlay", "serve", overlay.socket, overlay.interface, uid)
    return DockerRun(f"{node.name}-overlay-{work.token}", labels, options, node.image, command, once=True, reads=False)


def with_overlay_ends(
    nodes: Sequence[NodeContainer], facts: Sequence[HostFacts], job: Job, work: Work, overlay: Overlay | None
) -> tuple[NodeContainer, ...]:
    """Return the nodes, each with the container of its network end; unchanged nodes without an overlay."""
    if overlay is None:
        return tuple(nodes)
    uids = (str(container.ids_of(fact, job)[0]) for fact in facts)
    return tuple(replace(node, overlay=run_of(node, uid, work, overlay)) for node, uid in zip(nodes, uids, strict=True))
