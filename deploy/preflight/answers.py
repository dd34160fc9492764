"""The probes' checked answers: each host's facts, which host reaches which, and how far clocks differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from ..core import formats
from ..host.reached import NoAnswer
from . import prediction
from .format_1 import of_format_1
from .probe.probe import WAIT_S
from .request import Facts, PreflightRequest

# A host, and a host that it calls.
Pair = tuple[str, str]


@dataclass(frozen=True)
class Link:
    """One attempted connection. `kinds`: what training would use it for; `outcome`: `ok`, or how it failed.

    moved: the bytes that had passed in the direction in which the connection stopped. card: the hardware address in
    the caller's neighbour table for the called address, or for the gateway `by` on the way to it.
    """

    source: str
    target: str
    address: str
    port: int
    kinds: tuple[str, ...]
    outcome: str
    ms: float = 0.0
    host: str = ""
    seen: str = ""
    out_address: str = ""
    tries: int = 1
    sent: int = 0
    again: int = 0
    twice: int = 0
    send_s: float = 0.0
    both_s: float = 0.0
    size: int = 0
    rate: int = 0
    trip_ms: float = 0.0
    card: str = ""
    by: str = ""
    moved: int = 0

    @property
    def ends(self) -> Pair:
        """The calling host and the called host."""
        return self.source, self.target

    @property
    def call(self) -> tuple[str, str, str, int]:
        """The calling host, the called host, address and port: equal for two links of the same call."""
        return *self.ends, self.address, self.port

    @property
    def pair(self) -> frozenset[str]:
        """The two hosts, regardless of which one called."""
        return frozenset(self.ends)

    @property
    def is_outward(self) -> bool:
        """Whether it is to another host."""
        return self.source != self.target

    @property
    def mbit(self) -> tuple[float, float]:
        """Mbit/s of the payload to the target, and back; 0 for a direction in which not all of it passed."""
        back_s = self.both_s - self.send_s if self.ok else 0.0
        forth, back = (8e-6 * self.size / spent if spent > 0 else 0.0 for spent in (self.send_s, back_s))
        return forth, back

    @property
    def ok(self) -> bool:
        """Whether the right host answered, and the whole payload passed in both directions."""
        return self.outcome == "ok" and self.host in ("", self.target)

    def describe(self) -> str:
        """Return the link in words, as evidence."""
        where = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.source} -> {self.target} {where}:{self.port} {WORDS.get(self.outcome, self.outcome)}"


WORDS = {
    "ok": "answers",
    "dropped": f"no answer in {WAIT_S} s",
    "refused": "refused, although preflight's probe listens there",
    "unreachable": "rejected as unreachable",
    "no-route": "has no route",
    "no-family": "has no route: no address of this family",
    "no-scope": "has no route: the host's own kernel calls the address invalid",
    "forbidden": "forbidden by the host's own kernel",
    "other-run": "reaches the probe of another preflight",
    "no-address": "gets no local port or address",
    "silent": "connects, but nothing answers",
    "mute": "connects, but nothing sent after that arrives",
    "stranger": "reaches something else",
    "stall-send": "connects, but a large payload does not get through",
    "stall-receive": "connects, but a large payload does not come back",
    "reset": "is cut off",
    "cut": "stops half-way",
    "slow": "carries a payload, but too slowly to finish in time",
    "late": "no answer in 2.2 s, but one later",
    "at-times": "no answer in time, while other connections get one",
    "no-arp": "no answer: no host answers the ARP request",
    "wrong-card": "no answer: the neighbour table has a wrong hardware address",
}


@dataclass(frozen=True)
class Answers:
    """The answers of all hosts. `facts`: by host, in the hosts' order. `faults`: a host without facts -> why.

    clocks: how many seconds each host's clock is ahead of this machine's, and the possible error. networks: if the
    hosts share several networks, what each network carries (networks.py), first the one that the routes use. often: for
    repeated calls, the calling host, the called host, how many calls were answered, and how many there were.
    """

    request: PreflightRequest
    hosts: tuple[str, ...]
    facts: Mapping[str, Facts] = field(default_factory=dict)
    listens: Mapping[str, Facts] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    clocks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    faults: Mapping[str, NoAnswer] = field(default_factory=dict)
    control: Mapping[str, Facts] = field(default_factory=dict)
    seconds: float = 0.0
    networks: tuple[Facts, ...] = ()
    often: tuple[tuple[str, str, int, int], ...] = ()

    @property
    def master(self) -> str:
        """The host that should have the rendezvous: the first host with facts."""
        return (*self.hosts_with_facts, *self.hosts)[0]

    @cached_property
    def hosts_with_facts(self) -> tuple[str, ...]:
        """The hosts that returned facts, in order."""
        return tuple(self.facts)

    @cached_property
    def plan(self) -> prediction.Plan:
        """What torch will do on these hosts."""
        routes = {host: listen.get("routes", {}) for host, listen in self.listens.items()}
        return prediction.plan(self.request, self.facts, routes)

    @property
    def picks(self) -> Mapping[str, prediction.Pick]:
        """For each host, the interface and the address that its gloo or NCCL will choose."""
        return self.plan.data

    def card(self, host: str) -> Facts:
        """Return a host's facts about the interface that gloo or NCCL will choose; empty if it has none."""
        entry: Facts = self.facts[host]["interfaces"].get(self.picks[host].interface, {})
        return entry

    @cached_property
    def _by_pair(self) -> dict[Pair, list[Link]]:
        by_pair: dict[Pair, list[Link]] = {}
        for link in self.links:
            by_pair.setdefault(link.ends, []).append(link)
        return by_pair

    @property
    def rendezvous_host(self) -> str:
        """The host of the rendezvous: the only one that matches the endpoint, otherwise the first."""
        return self.plan.owners[0] if len(self.plan.owners) == 1 else self.master

    def resolved(self, host: str, name: str) -> list[str] | None:
        """Return the addresses to which a name resolves on a host, in order; None if it does not resolve."""
        names = {**self.facts[host]["names"], **self.listened(host, "names")}
        return prediction.addresses_of({**self.facts[host], "names": names}, name)

    def listened(self, host: str, what: str) -> Any:
        """Return one field of a host's answer to `listen`; empty if the host did not answer or lacks the field."""
        return self.listens.get(host, {}).get(what) or {}

    def between(self, source: str, target: str, kind: str = "") -> list[Link]:
        """Return the links from one host to another: those of one kind, or all."""
        return [link for link in self._by_pair.get((source, target), ()) if not kind or kind in link.kinds]

    def both_ways(self, ends: Pair) -> list[Link]:
        """Return the links between two hosts: first the calls of the first host, then those of the second."""
        return self.between(*ends) + self.between(*ends[::-1])

    def firewall(self, host: str) -> Facts:
        """Return what the probe could read of a host's firewall; empty if it may not read it."""
        rules: Facts = self.control.get(host, {}).get("firewall", {})
        return rules

    def rules_that_dropped(self, host: str) -> Sequence[str]:
        """Return the rules of a host's firewall that dropped packets while the probes repeated their calls."""
        rules: Sequence[str] = self.firewall(host).get("grown", ())
        return rules

    def json(self) -> dict[str, Any]:
        """Return all answers, for a recording; `Answers.of` reads it back."""
        return {
            "format": formats.ANSWERS,
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "request": asdict(self.request),
            "links": [asdict(link) for link in self.links],
        }

    @classmethod
    def of(cls, value: Facts, what: str = "the recording") -> Answers:
        """Read a recording; without a format number it has the first format.

        Raises UsageError, which names `what`, for a format newer than this Muster knows.
        """
        formats.refuse_newer(what, value.get("format"), formats.ANSWERS)
        value = value if value.get("format", 1) > 1 else of_format_1(value)
        links = tuple(Link(**{**link, "kinds": tuple(link["kinds"])}) for link in value["links"])
        rest = {name: value[name] for name in ("facts", "listens", "control", "seconds") if name in value}
        rest["faults"] = {host: NoAnswer(*fault) for host, fault in value.get("faults", {}).items()}
        clocks = {host: (pair[0], pair[1]) for host, pair in value.get("clocks", {}).items()}
        rest["networks"] = tuple(value.get("networks", ()))
        rest["often"] = tuple((row[0], row[1], row[2], row[3]) for row in value.get("often", ()))
        return cls(PreflightRequest(**value["request"]), tuple(value["hosts"]), links=links, clocks=clocks, **rest)


def ends_of(links: Iterable[Link]) -> tuple[Pair, ...]:
    """Return the (calling host, called host) pairs of these links, each pair once."""
    return tuple(dict.fromkeys(link.ends for link in links))


def pairs(hosts: Sequence[str]) -> list[Pair]:
    """Return every pair of hosts, in both directions."""
    return [(source, target) for source in hosts for target in hosts if source != target]
