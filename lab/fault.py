"""What a fault is: one function that breaks something, and what preflight should say of it.

    @fault("rendezvous-dropped", on="first")
    def firewall_drops_the_rendezvous_port(lab, host):
        host.firewall("INPUT -p tcp --dport 29500 -j DROP")

The function gets the laboratory and the host to break. It gives nothing where that host is to be named, or else the
hosts to be named, or a Link; where it breaks two things, two Expected. Whether it is a fault at all is not its opinion:
real torchrun says so (truth.json).
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
    """What goes from `source` to `target` is broken, by names."""

    source: str
    target: str


@dataclass(frozen=True)
class Fault:
    """One kind of fault, and the `cause` that preflight should name.

    `on`: which host is broken: `first` (the master), `last`, `other` (not the first), `any`, `all`. `style`: `muster`,
    with addresses as a deploy starts, or `torchrun`, with names. `endpoint`: `address`, `name`, or any text.
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
        """Its name as people say it."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Case:
    """One fault on so many hosts, on one of them."""

    fault: Fault
    count: int
    place: int

    @property
    def id(self):
        """How truth.json calls it."""
        return f"{self.fault.name}/{self.count}/{self.place}"


@dataclass(frozen=True)
class Expected:
    """What preflight should say: nothing (cause empty), or a cause and where; of two faults at once, both `parts`."""

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
    """Puts the function below into the catalogue. `also`: other causes that say the same of what was done."""

    def add(inject):
        if inject.__name__ in CATALOGUE:
            raise ValueError(f"two faults named {inject.__name__}")
        CATALOGUE[inject.__name__] = Fault(inject.__name__, cause, inject, **how)
        return inject

    return add


def catalogue():
    """All faults of lab/faults/*.py, by name."""
    for path in sorted(FOLDER.glob("*.py")):
        importlib.import_module(f"lab.faults.{path.stem}")
    return dict(sorted(CATALOGUE.items()))


def case(kind: Fault, count: int) -> Case:
    """The case measured for `count` hosts: where it may be any host, which one differs from fault to fault."""
    spread = zlib.crc32(f"{kind.name}{count}".encode())
    place = {"first": 0, "all": 0, "last": count - 1, "other": 1 + spread % (count - 1)}.get(kind.on, spread % count)
    return Case(kind, count, place)


def cases(faults, counts=None):
    """Each fault on each of its numbers of hosts."""
    return [case(kind, count) for kind in faults for count in counts or kind.counts]


def truths():
    """What real torchrun did in each case that was measured (benchmarks/preflight_truth.py), by the case."""
    return json.loads(TRUTH.read_text()) if TRUTH.exists() else {}


def laboratory(case: Case) -> Lab:
    """The hosts that this case is about, whole still."""
    return Lab(case.count, case.fault.families, case.fault.net4)


def inject(case: Case, lab) -> Expected:
    """Break the laboratory; what preflight should say then, if real torchrun does fail."""
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
