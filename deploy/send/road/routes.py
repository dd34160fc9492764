"""Who gets its pieces from whom, and when that changes: decisions from what is known of the hosts of a push. Pure.

The hosts make a chain: each gets from one other what that has or gets, and from here what no other has. A chain takes
one copy out of here, and each link of a host carries one in and one out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

HERE = "this machine"
# A host whose source has more for it, and which gets nothing for so long, is led around the source.
SILENT_S = 15.0
# A host is slow that is so many bytes behind its own source, at less than this part of its rate, over WINDOW_S.
BEHIND, SLOW, WINDOW_S = 4 << 20, 0.5, 4.0
# To share less than this takes longer than to send it.
WORTH = 256 << 10


@dataclass(eq=False)
class Stop:
    """A delivery to a host, as far as it is known here. `sizes`: of the pieces of its list. `got`: those it has.

    `source`: the delivery that passes on to it what that has, None for this machine; `avoids`: from those it gets
    nothing. `asks`, `serves`: whether it can get from others, and they from it. `marks`: times, and its bytes then, of
    the last WINDOW_S. `since`: when it last got something, or a source; `routed`: a source. `peak`: the most bytes a
    second that it got.
    """

    host: str
    sizes: Mapping[str, int]
    got: set[str] = field(default_factory=set)
    source: Self | None = None
    avoids: set[Self] = field(default_factory=set)
    asks: bool = True
    serves: bool = False
    marks: list[tuple[float, int]] = field(default_factory=list)
    since: float = 0.0
    bytes: int = 0
    peak: float = 0.0
    routed: float = 0.0

    def lacks(self) -> set[str]:
        """The pieces that it does not have."""
        return self.sizes.keys() - self.got

    def weight(self, digests: Collection[str]) -> int:
        """The bytes of these of its pieces."""
        return sum(self.sizes[digest] for digest in digests)

    def take(self, digest: str, now: float) -> bool:
        """It has this piece now; whether that is news."""
        if digest not in self.sizes or digest in self.got:
            return False
        self.got.add(digest)
        self.bytes += self.sizes[digest]
        self.marks.append((now, self.bytes))
        self.since = now
        self.peak = max(self.peak, self.rate(now))
        return True

    def rate(self, now: float) -> float:
        """Bytes a second, lately."""
        self.marks = [mark for mark in self.marks if mark[0] >= now - WINDOW_S]
        return (self.marks[-1][1] - self.marks[0][1]) / WINDOW_S if self.marks else 0.0

    def above(self) -> Iterator[Stop]:
        """Its source, the source of that, and so on, up to here."""
        source: Stop | None = self.source
        while source:
            yield source
            source = source.source


S = TypeVar("S", bound=Stop)


def source_for(stop: S, stops: Collection[S]) -> S | None:
    """From whom it should get what it lacks. None if no other has enough of it."""
    lacks = stop.lacks()
    shared = {
        other: stop.weight(lacks & other.sizes.keys())
        for other in stops
        if stop.asks and other.serves and other.host != stop.host
        and other not in stop.avoids and stop not in other.above()
    }  # fmt: skip
    asked = Counter(other.source for other in stops if other.lacks() and other is not stop)
    # Of hosts that have the same, the one that serves fewest: that makes a chain.
    best = max(shared, key=lambda other: (shared[other], -asked[other]), default=None)
    return best if best and shared[best] >= WORTH else None


def silent(stops: Collection[S], now: float) -> list[S]:
    """The hosts that get nothing from their source, which has more for them."""
    return [stop for stop in stops if stop.source and now - stop.since > SILENT_S and stop.lacks() & stop.source.got]


def detours(stops: Collection[S], now: float) -> list[S]:
    """The hosts that wait for a slow source: they had better ask the source of that."""
    led = []
    for stop in stops:
        source = stop.source
        before = source.source if source else None
        if not source or not before or before in stop.avoids or not before.serves:
            continue
        if now - max(stop.routed, source.routed) < 2 * WINDOW_S:
            continue
        waits = stop.weight(stop.lacks() & source.got) < BEHIND // 2
        is_behind = before.weight(before.got & source.lacks()) >= BEHIND
        if waits and is_behind and stop.lacks() & before.got and source.rate(now) < SLOW * before.peak:
            led.append(stop)
    return led


def ranges(wanted: Collection[str], order: Sequence[str]) -> str:
    """The places of these pieces in a list, from 1, as `sed -n` takes them: `1,15p;20,99p`."""
    runs = list[list[int]]()
    for place, digest in enumerate(order, 1):
        if digest in wanted and runs and runs[-1][1] == place - 1:
            runs[-1][1] = place
        elif digest in wanted:
            runs.append([place, place])
    return ";".join(f"{first},{last}p" for first, last in runs)
