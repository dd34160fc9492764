"""Who gets its pieces from whom, and when that changes: decisions from what is known of the hosts of a push. Pure.

The hosts make a chain: each gets from one other what that has or gets, and from here (HERE) what no other has. A chain
takes one copy out of here, and each link of a host carries one in and one out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HERE = "this machine"
# A host whose source has more for it, and which gets nothing for so long, is led around the source.
SILENT_S = 15.0
# A host is slow that is so many bytes behind its own source, at less than this part of its rate, over WINDOW_S.
BEHIND, SLOW, WINDOW_S = 4 << 20, 0.5, 4.0
# To share less than this takes longer than to send it.
WORTH = 256 << 10


@dataclass
class Stop:
    """A delivery to a host, as far as it is known here. `sizes`: of the pieces of its list. `got`: those it has.

    `source`: the delivery that passes on to it what that has; `avoids`: from those it gets nothing. `serves`: whether
    others may get from it. `marks`: times, and its bytes then, of the last WINDOW_S. `since`: when it last got
    something, or a source; `routed`: a source. `peak`: the most bytes a second that it got.
    """

    name: str
    host: str
    sizes: Mapping[str, int]
    got: set[str] = field(default_factory=set)
    source: str = HERE
    avoids: set[str] = field(default_factory=set)
    serves: bool = False
    marks: list[tuple[float, int]] = field(default_factory=list)
    since: float = 0.0
    bytes: int = 0
    peak: float = 0.0
    routed: float = 0.0

    def lacks(self) -> set[str]:
        """The pieces that it does not have."""
        return self.sizes.keys() - self.got

    def take(self, digest: str, now: float) -> bool:
        """It has this piece now; whether that is news."""
        if digest not in self.sizes or digest in self.got:
            return False
        self.got.add(digest)
        self.bytes += self.sizes[digest]
        self.marks = [*(mark for mark in self.marks if mark[0] >= now - WINDOW_S), (now, self.bytes)]
        self.since = now
        self.peak = max(self.peak, self.rate(now))
        return True

    def rate(self, now: float) -> float:
        """Bytes a second, lately."""
        recent = [mark for mark in self.marks if mark[0] >= now - WINDOW_S]
        return (recent[-1][1] - recent[0][1]) / WINDOW_S if recent else 0.0


Stops = Mapping[str, Stop]


def source_for(stop: Stop, stops: Stops) -> str:
    """From whom it should get what it lacks. HERE if no other has enough of it."""
    lacks = stop.lacks()
    children = Counter(other.source for other in stops.values() if other.lacks() and other is not stop)
    best, most = HERE, (WORTH - 1, 0)
    for name, other in stops.items():
        if not other.serves or other.host == stop.host or name in stop.avoids or stop.name in above(name, stops):
            continue
        shared = sum(stop.sizes[digest] for digest in lacks & other.sizes.keys())
        # Of hosts that have the same, the one that serves fewest: that makes a chain.
        if (shared, -children[name]) > most and shared >= WORTH:
            best, most = name, (shared, -children[name])
    return best


def above(name: str, stops: Stops) -> list[str]:
    """The delivery, its source, the source of that, and so on, up to here."""
    way = list[str]()
    while name in stops and name not in way:
        way.append(name)
        name = stops[name].source
    return way


def silent(stops: Stops, now: float) -> list[Stop]:
    """The hosts that get nothing from their source, which has more for them."""
    return [
        stop
        for stop in stops.values()
        if (source := stops.get(stop.source)) and now - stop.since > SILENT_S and stop.lacks() & source.got
    ]


def detours(stops: Stops, now: float) -> list[tuple[Stop, str]]:
    """The hosts that wait for a slow source, each with the source of that, which they had better ask."""
    led = list[tuple[Stop, str]]()
    for stop in stops.values():
        source = stops.get(stop.source)
        before = stops.get(source.source) if source else None
        if not source or not before or before.name in stop.avoids or not before.serves:
            continue
        if now - max(stop.routed, source.routed) < 2 * WINDOW_S:
            continue
        behind = sum(source.sizes.get(digest, 0) for digest in before.got - source.got)
        waits = sum(stop.sizes[digest] for digest in stop.lacks() & source.got) < BEHIND // 2
        if waits and behind >= BEHIND and stop.lacks() & before.got and source.rate(now) < SLOW * before.peak:
            led.append((stop, before.name))
    return led


def ranges(wanted: set[str], order: Sequence[str]) -> str:
    """The places of these pieces in a list, from 1: `1-15,20-99`."""
    runs = list[list[int]]()
    for place, digest in enumerate(order, 1):
        if digest not in wanted:
            continue
        if runs and runs[-1][1] == place - 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ",".join(f"{first}-{last}" for first, last in runs)
