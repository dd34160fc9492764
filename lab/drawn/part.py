"""A part of a draw: one primitive at one place, and what is right to say of it.

    @breaks("drop", "host")
    def host_drops(cast):
        host = cast.any()
        return part(f"{host} drops ...", firewall(host, "INPUT -j DROP"), "all-ports-dropped", cast.silent(host))

`causes`: the slugs that name what was done. `seen`: slugs of a true observation of it, which name no cause. Both count
as right, and the score counts them apart. `subjects`: each set of hosts that is right to name. A harmless part has
none of them: whatever preflight refuses because of it is wrong, as long as real torchrun trains.
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
    """The cluster that parts are drawn for. `chance` decides everything that a part leaves open."""

    chance: random.Random
    count: int
    families: str
    net4: str
    style: str = MUSTER
    endpoint: str = "address"

    @property
    def hosts(self) -> list[str]:
        """The hosts' names, as the laboratory will have them."""
        return [f"gpu-{LETTERS[place]}" for place in range(self.count)]

    def address(self, name: str, family: str = "") -> str:
        """A host's address in the network of the cluster."""
        place = self.hosts.index(name)
        four = "4" in self.families if not family else family == "4"
        return f"{self.net4}.{10 + place}" if four else f"fd77::{10 + place}"

    @property
    def run(self) -> Fault:
        """How the run is started, for lab/job.py and lab/trial.py."""
        return Fault("drawn", style=self.style, endpoint=self.endpoint)

    def any(self, but: Iterable[str] = ()) -> str:
        """A host."""
        return self.chance.choice([name for name in self.hosts if name not in but])

    def pair(self) -> tuple[str, str]:
        """Two hosts in an order."""
        first, other = self.chance.sample(self.hosts, 2)
        return first, other

    def alone(self, host: str) -> Subjects:
        """Only this host is right to name."""
        return frozenset({frozenset({host})})

    def silent(self, *hosts: str) -> Subjects:
        """These hosts; where the cluster has two, both ends of the link as well: no third party tells them apart."""
        both = {frozenset(self.hosts)} if self.count == 2 else set()
        return frozenset({frozenset(hosts), *both})

    def ends(self, first: str, other: str, broken_at: str = "") -> Subjects:
        """Both ends of a link, or the one end whose own system breaks it."""
        return frozenset({frozenset({first, other}), *({frozenset({broken_at})} if broken_at else ())})

    def everyone(self) -> Subjects:
        """All hosts."""
        return frozenset({frozenset(self.hosts)})


@dataclass(frozen=True)
class Part:
    """What was done, in the generator's own words, and what is right to say of it."""

    words: str
    do: Callable[[Lab], None]
    causes: frozenset[str] = frozenset()
    subjects: Subjects = frozenset()
    seen: frozenset[str] = frozenset()
    kind: str = field(default="")

    @property
    def right(self) -> tuple[list[str], list[list[str]], list[str]]:
        """What is right to say, for a record: causes, subjects, true observations."""
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
    """Registers a part that is meant to break a run. The maker gives None where the cluster has no such place.

    `families`: those of the only clusters that have one.
    """
    return _registered(FAULTS, f"{primitive} x {place}", families)


def harmless(primitive: str, place: str, families: str = "") -> Callable[[Maker], Maker]:
    """Registers a part that a run is meant to bear."""
    return _registered(HARMLESS, f"{primitive} x {place}", families)


def _registered(kinds: dict[str, Maker], name: str, families: str) -> Callable[[Maker], Maker]:
    def add(make: Maker) -> Maker:
        kinds[f"{name}: {make.__name__}"] = lambda cast: make(cast) if families in ("", cast.families) else None
        return make

    return add


def part(words: str, do: Act, causes: str = "", subjects: Subjects = frozenset(), seen: str = "") -> Part:
    """A part whose causes and true observations are given as words."""
    return Part(words, do, frozenset(causes.split()), subjects, frozenset(seen.split()))


def at(hosts: str | Sequence[str], act: Callable[[Host], object]) -> Act:
    """What is done to a host, or to each of several."""
    names = [hosts] if isinstance(hosts, str) else hosts
    return lambda lab: [act(host_of(lab, name)) for name in names]


def ip(hosts: str | Sequence[str], *lines: str) -> Act:
    """`ip` commands there."""
    return at(hosts, lambda host: host.ip(*lines))


def firewall(hosts: str | Sequence[str], *rules: str, families: str = "4") -> Act:
    """Rules of the firewall there."""
    return at(hosts, lambda host: host.firewall(*rules, families=families))


def host_of(lab: Lab, name: str):
    """A host of the laboratory by its name."""
    return next(host for host in lab.hosts if host.name == name)
