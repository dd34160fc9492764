"""A fault is one function that breaks something, and the answer that preflight should give.

    @fault("rendezvous-dropped", on="first")
    def firewall_drops_the_rendezvous_port(lab, host):
        host.firewall("INPUT -p tcp --dport 29500 -j DROP")

The function gets the laboratory and the host to break. It returns nothing if that host should be named, else the hosts
or the Link that should be named; if it breaks two things, it returns two Expected. The function does not decide whether
it is a fault at all: real torchrun does (truth.json).
"""

from __future__ import annotations

import importlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.network import Lab

TORCHRUN, MUSTER = "torchrun", "muster"
FOLDER = Path(__file__).resolve().parent / "faults"
TRUTH = Path(__file__).with_name("truth.json")
CATALOGUE: dict[str, Fault] = {}


@dataclass(frozen=True)
class Link:
    """The direction from `source` to `target` is broken; both are host names."""

    source: str
    target: str


@dataclass(frozen=True)
class Fault:
    """One kind of fault, and the `cause` that preflight should name.

    `on`: which host is broken: `first` (the master), `last`, `other` (not the first), `any`, `all`. `style`: `muster`,
    with addresses, as a deploy starts a run, or `torchrun`, with names. `endpoint`: `address`, `name`, or any text.
    `rendezvous`: `c10d` or `static`. `families`: `4`, `6` or `46`. `also`: other causes that describe the same fault
    correctly. `counts`: the numbers of hosts to try.
    """

    name: str
    cause: str = ""
    inject: Callable = lambda lab, host: None
    on: str = "any"
    style: str = MUSTER
    endpoint: str = "address"
    rendezvous: str = "c10d"
    families: str = "4"
    net4: str = "10.77.0"
    also: tuple[str, ...] = ()
    counts: tuple[int, ...] = (2, 3)

    @property
    def words(self):
        """Its name in words."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Case:
    """One fault on a cluster of `count` hosts; `place` is the broken host."""

    fault: Fault
    count: int
    place: int

    @property
    def id(self):
        """Its key in truth.json."""
        return f"{self.fault.name}/{self.count}/{self.place}"


@dataclass(frozen=True)
class Expected:
    """The answer that preflight should give: nothing (empty cause), or a cause and a place.

    For two faults, both `parts`.
    """

    cause: str = ""
    hosts: tuple[str, ...] = ()
    link: Link | None = None
    also: tuple[str, ...] = field(default=())
    parts: tuple[Expected, ...] = ()

    @property
    def where(self):
        """The hosts or the link, in words."""
        if self.parts:
            return " + ".join(part.where for part in self.parts)
        return f"{self.link.source} -> {self.link.target}" if self.link else ", ".join(self.hosts)


def fault(cause, **how):
    """Put the decorated function into the catalogue. `also`: other causes that describe the fault correctly."""

    def add(inject):
        if inject.__name__ in CATALOGUE:
            raise ValueError(f"two faults named {inject.__name__}")
        CATALOGUE[inject.__name__] = Fault(inject.__name__, cause, inject, **how)
        return inject

    return add


def catalogue():
    """All faults in lab/faults/*.py, by name."""
    for path in sorted(FOLDER.glob("*.py")):
        importlib.import_module(f"lab.faults.{path.stem}")
    return dict(sorted(CATALOGUE.items()))


def case(kind: Fault, count: int) -> Case:
    """The measured case for `count` hosts: if any host may be broken, the choice differs from fault to fault."""
    spread = zlib.crc32(f"{kind.name}{count}".encode())
    place = {"first": 0, "all": 0, "last": count - 1, "other": 1 + spread % (count - 1)}.get(kind.on, spread % count)
    return Case(kind, count, place)


def cases(faults, counts=None):
    """Each fault with each of its numbers of hosts."""
    return [case(kind, count) for kind in faults for count in counts or kind.counts]


def truths():
    """What real torchrun did in each measured case (benchmarks/preflight_truth.py), by the case's id."""
    return json.loads(TRUTH.read_text()) if TRUTH.exists() else {}


def laboratory(case: Case) -> Lab:
    """The hosts for this case, before anything is broken."""
    return Lab(case.count, case.fault.families, case.fault.net4)


def inject(case: Case, lab) -> Expected:
    """Break the laboratory; returns what preflight should say, provided that real torchrun fails."""
    host = lab.hosts[case.place]
    given = case.fault.inject(lab, host)
    plain = Expected(case.fault.cause, (host.name,), None, case.fault.also)
    if given and isinstance(given, list) and isinstance(given[0], Expected):
        return Expected(" + ".join(part.cause for part in given), parts=tuple(given))
    if isinstance(given, Link):
        return replace(plain, hosts=(), link=given)
    if case.fault.on == "all" and given is None:
        return replace(plain, hosts=tuple(host.name for host in lab.hosts))
    return replace(plain, hosts=tuple(given)) if given else plain
