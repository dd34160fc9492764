"""Draw a cluster and one to three parts from a seed. The same seed and number always give the same draw."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lab.drawn import filters, routes, settings, wires  # noqa: F401  (they register their parts)
from lab.drawn.part import FAULTS, HARMLESS, Cast, Part
from lab.fault import MUSTER, TORCHRUN
from lab.network import Lab

# Networks that real machines have: private ones, one like Docker's, one like Tailscale's.
NETWORKS = ("10.77.0", "10.0.3", "172.20.5", "172.17.0", "192.168.7", "192.168.122", "100.70.1", "203.0.113")
COUNTS, TWO, THREE, ODD_TOO = (2, 2, 3, 3, 4, 5), 0.35, 0.12, 0.4


@dataclass(frozen=True)
class Draw:
    """One draw: `seed`.`number`, a cluster, and what is done to it."""

    seed: int
    number: int
    cast: Cast
    parts: tuple[Part, ...]

    @property
    def id(self) -> str:
        """Its name in records; `python -m benchmarks.preflight_drawn --draw ID` makes the draw again."""
        return f"{self.seed}.{self.number}"

    @property
    def words(self) -> str:
        """A description of what was done, in the generator's words."""
        cast = self.cast
        where = (
            f"{cast.count} hosts, {cast.net4}" if cast.families == "4" else f"{cast.count} hosts, IPv{cast.families}"
        )
        return f"{where}, {cast.style}: " + "; ".join(part.words for part in self.parts)

    def lab(self) -> Lab:
        """The hosts, before anything is broken."""
        return Lab(self.cast.count, self.cast.families, self.cast.net4)

    def break_hosts(self, lab: Lab) -> None:
        """Break the hosts as drawn."""
        for part in self.parts:
            part.do(lab)

    def only(self, part: Part) -> Draw:
        """The same cluster with only one of the parts."""
        return replace(self, parts=(part,))


def draw(seed: int, number: int) -> Draw:
    """One draw. Even numbers are meant to break a run, odd ones are not; real torchrun decides whether they do."""
    chance = random.Random(f"{seed}.{number}")
    style = MUSTER if chance.random() < 0.8 else TORCHRUN
    families = "4" if chance.random() < 0.8 else chance.choice(("6", "46"))
    net4 = chance.choice(NETWORKS) if families == "4" else "10.77.0"
    endpoint = "name" if style == TORCHRUN and chance.random() < 0.5 else "address"
    cast = Cast(chance, chance.choice(COUNTS), families, net4, style, endpoint)
    size = chance.random()
    size = 3 if size < THREE else 2 if size < THREE + TWO else 1
    parts: list[Part] = []
    while len(parts) < size:
        breaking = number % 2 == 0 and (not parts or chance.random() >= ODD_TOO)
        kinds = FAULTS if breaking else HARMLESS
        name = chance.choice(sorted(kinds))
        part = kinds[name](cast)
        if part and all(part_.kind != name for part_ in parts):
            parts.append(replace(part, kind=name))
    return Draw(seed, number, cast, tuple(parts))


def draws(seed: int) -> Iterator[Draw]:
    """All draws of a seed, one after the other."""
    number = 0
    while True:
        yield draw(seed, number)
        number += 1
