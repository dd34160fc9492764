"""Choose the network on which the hosts meet: which networks they share, which pairs to measure, the best one. Pure.

A network counts for a host only if the host's address in it is the first of its interface: gloo and NCCL use the first
one. The best network is the fastest of those that connect all hosts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..core.text import listed
from . import prediction
from .answers import Answers, Link, Pair
from .request import MUSTER, Facts
from .targets import Call

# The payloads of the calls. If the first is fast, two larger ones tell a fast network from a faster one; the better of
# the two counts, because a busy host can only slow a call down.
SIZES, WAIT_S, FAST_MBIT = (1 << 20, 8 << 20, 8 << 20), 1.5, 150.0
SIZE = SIZES[0]
# The name that hosts/node/overlay_plan.py gives to an interface of a run's own network.
_OVERLAY_NAME = re.compile(r"muster[0-9a-f]{8}")
# With at most this many hosts, all pairs are measured; with more, each host with the next one.
ALL_PAIRS = 8
# Another network must be faster by this factor than the one that the routes use.
FASTER = 1.25
# A call with one of these outcomes was answered, so the network is open, even if the payload did not pass whole.
OPEN = ("ok", "slow", "late", "at-times")
VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True)
class Network:
    """One network: its name, and for each host its interface and address in it (`places`).

    closed: pairs of hosts that cannot reach each other on it. mbit: the rate of its slowest pair, 0 if not measured.
    """

    name: str
    places: Mapping[str, tuple[str, str]]
    closed: tuple[Pair, ...] = ()
    mbit: float = 0.0

    @property
    def interfaces(self) -> str:
        """The network's interfaces in words: one name if all hosts have the same."""
        return " or ".join(sorted({interface for interface, _ in self.places.values()}))

    @property
    def words(self) -> str:
        """`eth1 (10.0.0.0/24, 9.4 Gbit/s)`."""
        return f"{self.interfaces} ({self.name}{f', {rate_words(self.mbit)}' if self.mbit else ''})"

    @classmethod
    def of(cls, value: Facts) -> Network:
        """Read a network from a recording, where it has the form of `asdict`."""
        places = {host: (interface, address) for host, (interface, address) in value["places"].items()}
        closed = tuple((first, other) for first, other in value["closed"])
        return cls(value["name"], places, closed, value["mbit"])


# The beginning of the summary if no network is chosen.
NONE = "no network connects all hosts"


def rate_words(mbit: float) -> str:
    """`9.4 Gbit/s`, `87 Mbit/s`, `300 kbit/s`."""
    if mbit < 1:
        return f"{1000 * mbit:.0f} kbit/s"
    return f"{mbit / 1000:.1f} Gbit/s" if mbit >= 1000 else f"{mbit:.0f} Mbit/s"


def is_overlay(interface: str) -> bool:
    """Whether an interface is that of a run's own network (--overlay)."""
    return bool(_OVERLAY_NAME.fullmatch(interface))


def candidates(answers: Answers) -> list[Network]:
    """Return the networks that at least two hosts share, first the one the routes use; empty if there is no choice.

    There is no choice with fewer than two networks, or if the user or another launcher chooses the interfaces.
    """
    hosts = answers.hosts_with_facts
    if answers.request.style != MUSTER or len(hosts) < 2 or answers.request.interfaces:
        return []
    variables = [{**answers.facts[host].get("environment", {}), **answers.request.environment} for host in hosts]
    if any(name in given for given in variables for name in VARIABLES):
        return []
    by_name: dict[str, dict[str, tuple[str, str]]] = {}
    for host in hosts:
        for name, interface, address in _of_host(answers, host):
            by_name.setdefault(name, {}).setdefault(host, (interface, address))
    shared = [Network(name, places) for name, places in by_name.items() if _distinct(places)]
    routed = {host: (pick.interface, pick.address) for host, pick in answers.picks.items() if not pick.problem}
    present = next((network for network in shared if dict(network.places) == routed), None)
    if not present and _distinct(routed):
        present = Network("by the hosts' routes", routed)
    ordered = [present] if present else []
    # A network is no alternative if every host has the same interface and address in it as on the routes' network.
    shared = [network for network in shared if not present or not network.places.items() <= present.places.items()]
    ordered += sorted(shared, key=lambda network: -len(network.places))
    return ordered if len(ordered) > 1 else []


def _of_host(answers: Answers, host: str) -> Iterator[tuple[str, str, str]]:
    """Yield the networks of a host: name, interface, address. A tunnel's peers share no network, only its name."""
    first = set[tuple[str, int]]()
    for interface, address, prefix in prediction.reachable(answers.facts[host]):
        if is_overlay(interface):
            continue  # this is another run's own network (--overlay), which ends with that run
        network = prediction.network_of(address, prefix)
        if (interface, network.version) in first or (interface, 4) in first:
            continue
        first.add((interface, network.version))
        alone = network.num_addresses == 1
        yield (f"the peers of {interface}" if alone else str(network)), interface, address


def _distinct(places: Mapping[str, tuple[str, str]]) -> bool:
    return len(places) > 1 and len({address for _, address in places.values()}) == len(places)


def pairs_of(network: Network) -> list[Pair]:
    """Return the pairs of hosts to measure: all pairs of few hosts; else each host and the next."""
    hosts = list(network.places)
    if len(hosts) <= ALL_PAIRS:
        return list(itertools.combinations(hosts, 2))
    return list(zip(hosts, hosts[1:] + hosts[:1], strict=True))


def call(answers: Answers, network: Network, target: str, size: int) -> Call | None:
    """Return the call that measures the path to a host; None if the host's probe listens on no port."""
    opened = answers.listened(target, "sampled")
    where = {"host": target, "address": network.places[target][1], "kinds": ["network"], "id": 0}
    return {**where, "port": opened[0], "size": size, "wait": WAIT_S} if opened else None


def measured(answers: Answers, network: Network, links: Iterable[Link]) -> Network:
    """Return the network with the results of calls on it: those that measure it, and earlier ones of the preflight."""
    where = {host: address for host, (_, address) in network.places.items()}
    mine = [link for link in (*answers.links, *links) if link.address == where.get(link.target)]
    mine = [link for link in mine if link.source in where and link.is_outward]
    opened = {link.ends for link in mine if _opened(link)}
    tried = {link.ends for link in mine}
    closed = tuple(pair for pair in sorted(tried - opened) if _needed(answers, network, pair))
    best: dict[Pair, float] = {}
    for link in (link for link in mine if "network" in link.kinds):
        for way, mbit in _rates(link):
            best[way] = max(mbit, best.get(way, 0.0))
    return Network(network.name, network.places, closed, round(min(best.values(), default=0.0), 1))


def _opened(link: Link) -> bool:
    return link.host in ("", link.target) and (
        link.outcome in OPEN or bool(link.send_s) or ("network" in link.kinds and link.moved > SIZE // 64)
    )


def _needed(answers: Answers, network: Network, pair: Pair) -> bool:
    """Whether a run on this network opens connections from the first host of the pair to the second."""
    mine, theirs = (network.places[host][1] for host in pair)
    return answers.request.by_nccl or pair[1] == answers.master or prediction.connects(mine, theirs)


def _rates(link: Link) -> Iterator[tuple[Pair, float]]:
    """Yield the Mbit/s of each direction; if the call did not end in time, from the bytes that had passed by then."""
    forth, back = link.mbit
    yield link.ends, forth or 8e-6 * link.moved / WAIT_S
    if forth:
        yield link.ends[::-1], back or 8e-6 * link.moved / max(WAIT_S - link.send_s, 0.1)


def best(networks: Sequence[Network], hosts: Sequence[str]) -> Network | None:
    """Return the best network that connects all hosts; None if none does. `networks`: first the one the routes use."""
    whole = [network for network in networks if not network.closed and len(network.places) == len(hosts)]
    if not whole:
        return None
    fastest = max(whole, key=lambda network: network.mbit)
    # Keep the network that the routes use unless another one is clearly faster.
    return whole[0] if whole[0] is networks[0] and FASTER * whole[0].mbit >= fastest.mbit else fastest


def interfaces(network: Network) -> dict[str, str]:
    """Return each host's interface in a network, as `PreflightRequest.interfaces` expects it."""
    return {host: interface for host, (interface, _) in network.places.items()}


def summary(networks: Sequence[Network], chosen: Network | None, hosts: Sequence[str]) -> str:
    """`the hosts meet on eth1 (10.0.0.0/24, 9.4 Gbit/s); eth0 is closed between gpu-a and gpu-b`.

    If none is chosen: `no network connects all hosts`, and what is wrong with each.
    """
    words = [f"the hosts meet on {chosen.words}" if chosen else NONE]
    for network in (network for network in networks if network is not chosen):
        name = f"{network.interfaces} ({network.name})"
        lacking = [host for host in hosts if host not in network.places]
        wrong = [f"is not on {listed(lacking)}"] * bool(lacking)
        wrong[:0] = [f"is closed between {_closed(network, hosts)}"] * bool(network.closed)
        words.append(f"{name} {' and '.join(wrong)}" if wrong else f"{network.words} is no better")
    return "; ".join(words)


def description(answers: Answers, ok: bool) -> str:
    """Describe on which network the hosts meet, or why on none, unless all is `ok`. Empty if they have no choice."""
    networks = [Network.of(network) for network in answers.networks]
    hosts = answers.hosts_with_facts
    chosen = best(networks, hosts) if networks else None
    return summary(networks, chosen, hosts) if chosen or (networks and not ok) else ""


def _closed(network: Network, hosts: Sequence[str]) -> str:
    ends = [host for host in hosts if any(host in pair for pair in network.closed)]
    return "them" if len(ends) == len(hosts) > 2 else listed(ends)
