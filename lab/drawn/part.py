"""A part of a draw: one primitive at one place, and the right answers about it.

    @breaks("drop", "host")
    def host_drops(cast):
        host = cast.any()
        return part(f"{host} drops ...", firewall(host, "INPUT -j DROP"), "all-ports-dropped", cast.silent(host))

`causes`: the slugs that name what was done. `seen`: the slugs of true observations of it, which name no cause. Both
count as right, and the score counts them separately. `subjects`: each set of hosts that may be named. A harmless part
has none of these: if preflight refuses because of it, that is wrong, provided that real torchrun trains.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lab.fault import MUSTER, Fault
from lab.network import LETTERS, Host, Lab

Subjects = frozenset[frozenset[str]]


@dataclass(frozen=True)
class Cast:
    """The cluster for which parts are drawn. `chance` decides everything that a part leaves open."""

    chance: random.Random
    count: int
    families: str
    net4: str
    style: str = MUSTER
    endpoint: str = "address"

    @property
    def hosts(self) -> list[str]:
        """The names that the hosts will have in the laboratory."""
        return [f"gpu-{LETTERS[place]}" for place in range(self.count)]

    def address(self, name: str, family: str = "") -> str:
        """A host's address in the cluster's network."""
        place = self.hosts.index(name)
        four = "4" in self.families if not family else family == "4"
        return f"{self.net4}.{10 + place}" if four else f"fd77::{10 + place}"

    @property
    def run(self) -> Fault:
        """How the run is started, for lab/job.py and lab/trial.py."""
        return Fault("drawn", style=self.style, endpoint=self.endpoint)

    def any(self, but: Iterable[str] = ()) -> str:
        """A random host."""
        return self.chance.choice([name for name in self.hosts if name not in but])

    def pair(self) -> tuple[str, str]:
        """Two random hosts, in random order."""
        first, other = self.chance.sample(self.hosts, 2)
        return first, other

    def alone(self, host: str) -> Subjects:
        """Only this host may be named."""
        return frozenset({frozenset({host})})

    def silent(self, *hosts: str) -> Subjects:
        """These hosts may be named; in a cluster of two, also both ends of the link, since no third host can tell."""
        both = {frozenset(self.hosts)} if self.count == 2 else set()
        return frozenset({frozenset(hosts), *both})

    def ends(self, first: str, other: str, broken_at: str = "") -> Subjects:
        """Both ends of a link may be named, or the one end whose own system breaks it."""
        return frozenset({frozenset({first, other}), *({frozenset({broken_at})} if broken_at else ())})

    def everyone(self) -> Subjects:
        """All hosts must be named."""
        return frozenset({frozenset(self.hosts)})


@dataclass(frozen=True)
class Part:
    """What was done, in the generator's own words, and the right answers about it."""

    words: str
    do: Callable[[Lab], None]
    causes: frozenset[str] = frozenset()
    subjects: Subjects = frozenset()
    seen: frozenset[str] = frozenset()
    kind: str = field(default="")

    @property
    def right(self) -> tuple[list[str], list[list[str]], list[str]]:
        """The right answers, for a record: causes, subjects, true observations."""
        return sorted(self.causes), sorted(map(sorted, self.subjects)), sorted(self.seen)

    @property
    def harmful(self) -> bool:
        """Whether it is meant to break the run; real torchrun decides whether it does."""
        return bool(self.causes)


Act = Callable[[Lab], object]
Maker = Callable[[Cast], Part | None]
FAULTS: dict[str, Maker] = {}
HARMLESS: dict[str, Maker] = {}


def breaks(primitive: str, place: str, families: str = "") -> Callable[[Maker], Maker]:
    """Register a part that is meant to break a run. The maker returns None if the cluster has no such place.

    `families`: if given, only clusters with these address families have such a place.
    """
    return _registered(FAULTS, f"{primitive} x {place}", families)


def harmless(primitive: str, place: str, families: str = "") -> Callable[[Maker], Maker]:
    """Register a part that a run is meant to survive."""
    return _registered(HARMLESS, f"{primitive} x {place}", families)


def _registered(kinds: dict[str, Maker], name: str, families: str) -> Callable[[Maker], Maker]:
    def add(make: Maker) -> Maker:
        kinds[f"{name}: {make.__name__}"] = lambda cast: make(cast) if families in ("", cast.families) else None
        return make

    return add


def part(words: str, do: Act, causes: str = "", subjects: Subjects = frozenset(), seen: str = "") -> Part:
    """A part; its causes and true observations are given as space-separated words."""
    return Part(words, do, frozenset(causes.split()), subjects, frozenset(seen.split()))


def at(hosts: str | Sequence[str], act: Callable[[Host], object]) -> Act:
    """An action on a host, or on each of several hosts."""
    names = [hosts] if isinstance(hosts, str) else hosts
    return lambda lab: [act(host_of(lab, name)) for name in names]


def ip(hosts: str | Sequence[str], *lines: str) -> Act:
    """Run `ip` commands on these hosts."""
    return at(hosts, lambda host: host.ip(*lines))


def firewall(hosts: str | Sequence[str], *rules: str, families: str = "4") -> Act:
    """Add firewall rules on these hosts."""
    return at(hosts, lambda host: host.firewall(*rules, families=families))


def host_of(lab: Lab, name: str):
    """A host of the laboratory by its name."""
    return next(host for host in lab.hosts if host.name == name)
