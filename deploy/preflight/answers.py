"""The raw answers of the probes: each host's facts, who reaches whom, how far clocks differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from ..core import formats
from . import prediction
from .probe.probe import WAIT_S
from .request import Facts, PreflightRequest

# A host, and one that it calls.
Pair = tuple[str, str]


@dataclass(frozen=True)
class Link:
    """One attempted connection. `kinds`: what training would use it for; `outcome`: `ok`, or how it failed.

    moved: bytes that passed in the direction in which it ended. card: the hardware address that the caller has for the
    called address, or for the gateway `by` on the way.
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
        """Who called whom."""
        return self.source, self.target

    @property
    def call(self) -> tuple[str, str, str, int]:
        """Who called whom, and where: what two links of one call have in common."""
        return *self.ends, self.address, self.port

    @property
    def pair(self) -> frozenset[str]:
        """The two hosts, whoever called."""
        return frozenset(self.ends)

    @property
    def outward(self) -> bool:
        """Whether it is to another host."""
        return self.source != self.target

    @property
    def mbit(self) -> tuple[float, float]:
        """Mbit/s of the payload there, and back; 0 for a way that it did not pass whole."""
        back_s = self.both_s - self.send_s if self.ok else 0.0
        forth, back = (8e-6 * self.size / spent if spent > 0 else 0.0 for spent in (self.send_s, back_s))
        return forth, back

    @property
    def ok(self) -> bool:
        """Whether the right host answered, and the whole payload passed in both directions."""
        return self.outcome == "ok" and self.host in ("", self.target)

    def describe(self) -> str:
        """The link in words, as evidence."""
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
    """The answers of all hosts. `facts`: in the order of the hosts. `faults`: those without, each with cause and words.

    clocks: the seconds that each host is ahead of this machine, and the possible error. networks: where the hosts have
    several, what each carries (networks.py), the one that the routes lead to first. often: a caller, whom
    it called many times, how many of these calls were answered, and how many there were.
    """

    request: PreflightRequest
    hosts: tuple[str, ...]
    facts: Mapping[str, Facts] = field(default_factory=dict)
    listens: Mapping[str, Facts] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    clocks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    faults: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    control: Mapping[str, Facts] = field(default_factory=dict)
    seconds: float = 0.0
    networks: tuple[Facts, ...] = ()
    often: tuple[tuple[str, str, int, int], ...] = ()

    @property
    def master(self) -> str:
        """The host that should have the rendezvous: the first that gave facts."""
        return (*self.hosts_with_facts, *self.hosts)[0]

    @cached_property
    def hosts_with_facts(self) -> tuple[str, ...]:
        """Hosts that gave facts, in order."""
        return tuple(self.facts)

    @cached_property
    def plan(self) -> prediction.Plan:
        """What torch will do on these hosts."""
        routes = {host: listen.get("routes", {}) for host, listen in self.listens.items()}
        return prediction.plan(self.request, self.facts, routes)

    @property
    def picks(self) -> Mapping[str, prediction.Pick]:
        """By host, the interface and the address that its gloo or NCCL will choose."""
        return self.plan.data

    def card(self, host: str) -> Facts:
        """What a host says of the interface that will be chosen; nothing if it has no such one."""
        entry: Facts = self.facts[host]["interfaces"].get(self.picks[host].interface, {})
        return entry

    @cached_property
    def _by_pair(self) -> dict[Pair, list[Link]]:
        by_pair: dict[Pair, list[Link]] = {}
        for link in self.links:
            by_pair.setdefault(link.ends, []).append(link)
        return by_pair

    @property
    def meeting(self) -> str:
        """The host of the rendezvous: the only one that matches the endpoint, otherwise the first."""
        return self.plan.owners[0] if len(self.plan.owners) == 1 else self.master

    def resolved(self, host: str, name: str) -> list[str] | None:
        """The addresses that a name has on a host, in their order; None if it has none."""
        names = {**self.facts[host]["names"], **self.listened(host, "names")}
        return prediction.addresses_of({**self.facts[host], "names": names}, name)

    def listened(self, host: str, what: str) -> Any:
        """What of this kind a host's answer to `listen` has; nothing if it gave none."""
        return self.listens.get(host, {}).get(what) or {}

    def between(self, source: str, target: str, kind: str = "") -> list[Link]:
        """The links from one host to another: those of one kind, or all."""
        return [link for link in self._by_pair.get((source, target), ()) if not kind or kind in link.kinds]

    def both_ways(self, ends: Pair) -> list[Link]:
        """The links between two hosts, those of the first one before the other's."""
        return self.between(*ends) + self.between(*ends[::-1])

    def firewall(self, host: str) -> Facts:
        """What a host's firewall has, as far as we may read it."""
        rules: Facts = self.control.get(host, {}).get("firewall", {})
        return rules

    def grown(self, host: str) -> Sequence[str]:
        """The rules of a host's firewall that lost packets while we called again."""
        rules: Sequence[str] = self.firewall(host).get("grown", ())
        return rules

    def json(self) -> dict[str, Any]:
        """Everything, for a recording; `Answers.of` reads it back."""
        return {
            "format": formats.ANSWERS,
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "request": asdict(self.request),
            "links": [asdict(link) for link in self.links],
        }

    @classmethod
    def of(cls, value: Facts, what: str = "the recording") -> Answers:
        """Read a recording; one without a format is of the first. Raises UsageError, with `what`, for a newer one."""
        formats.refuse_newer(what, value.get("format"), formats.ANSWERS)
        links = tuple(Link(**{**link, "kinds": tuple(link["kinds"])}) for link in value["links"])
        rest = {name: value[name] for name in ("facts", "listens", "faults", "control", "seconds") if name in value}
        clocks = {host: (pair[0], pair[1]) for host, pair in value.get("clocks", {}).items()}
        rest["networks"] = tuple(value.get("networks", ()))
        rest["often"] = tuple((row[0], row[1], row[2], row[3]) for row in value.get("often", ()))
        return cls(PreflightRequest(**value["request"]), tuple(value["hosts"]), links=links, clocks=clocks, **rest)


def ends_of(links: Iterable[Link]) -> tuple[Pair, ...]:
    """Who called whom in these links, each pair once."""
    return tuple(dict.fromkeys(link.ends for link in links))


def pairs(hosts: Sequence[str]) -> list[Pair]:
    """Every host with every other, both ways."""
    return [(source, target) for source in hosts for target in hosts if source != target]
