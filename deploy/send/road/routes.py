"""Which host gets its pieces from which, and when that changes: decisions from what is known of the hosts. Pure.

The hosts form a chain. Each host gets the pieces that one other host has or is getting from that host, and the pieces
that no other host has from this machine. With a chain only one copy leaves this machine, and each host's link carries
one copy in and one copy out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

HERE = "this machine"
# If a host receives nothing for this long although its source has more for it, it gets another source.
SILENT_S = 15.0
# A source is slow if it lacks at least BEHIND bytes that its own source has, and its rate over the last WINDOW_S
# seconds is below the fraction SLOW of its own source's best rate.
BEHIND, SLOW, WINDOW_S = 4 << 20, 0.5, 4.0
# Sharing fewer bytes than this between hosts takes longer than sending them from this machine.
WORTH = 256 << 10


@dataclass(eq=False)
class Receiver:
    """What this machine knows about a delivery to one host.

    `sizes`: the sizes of the pieces on its list. `got`: the digests of the pieces that the host has.
    `source`: the delivery whose host passes its pieces on to this one; None for this machine.
    `avoids`: the deliveries from which this host must not fetch.
    `can_fetch`: whether the host can fetch from others. `can_serve`: whether others can fetch from it.
    `marks`: the host's byte count at certain times in the last WINDOW_S seconds. `bytes`: the count now.
    `since`: when it last received a piece or got a source. `routed`: when it last got a source.
    `peak`: the highest rate at which it received, in bytes per second.
    """

    host: str
    sizes: Mapping[str, int]
    got: set[str] = field(default_factory=set)
    source: Self | None = None
    avoids: set[Self] = field(default_factory=set)
    can_fetch: bool = True
    can_serve: bool = False
    marks: list[tuple[float, int]] = field(default_factory=list)
    since: float = 0.0
    bytes: int = 0
    peak: float = 0.0
    routed: float = 0.0

    def lacks(self) -> set[str]:
        """The digests of the pieces that the host does not have."""
        return self.sizes.keys() - self.got

    def weight(self, digests: Collection[str]) -> int:
        """The total size of these pieces in bytes."""
        return sum(self.sizes[digest] for digest in digests)

    def add_piece(self, digest: str, now: float) -> bool:
        """Record that the host has this piece; True if that is new."""
        if digest not in self.sizes or digest in self.got:
            return False
        self.got.add(digest)
        self.bytes += self.sizes[digest]
        self.marks.append((now, self.bytes))
        self.since = now
        self.peak = max(self.peak, self.rate(now))
        return True

    def rate(self, now: float) -> float:
        """Bytes per second in the last WINDOW_S seconds."""
        self.marks = [mark for mark in self.marks if mark[0] >= now - WINDOW_S]
        return (self.marks[-1][1] - self.marks[0][1]) / WINDOW_S if self.marks else 0.0

    def upstream(self) -> Iterator[Receiver]:
        """Its source, that one's source, and so on, up to this machine."""
        source: Receiver | None = self.source
        while source:
            yield source
            source = source.source


S = TypeVar("S", bound=Receiver)


def source_for(receiver: S, receivers: Collection[S]) -> S | None:
    """The delivery from which this host should fetch what it lacks; None if no other host has enough of it."""
    lacks = receiver.lacks()
    shared = {
        other: receiver.weight(lacks & other.sizes.keys())
        for other in receivers
        if receiver.can_fetch and other.can_serve and other.host != receiver.host
        and other not in receiver.avoids and receiver not in other.upstream()
    }  # fmt: skip
    asked = Counter(other.source for other in receivers if other.lacks() and other is not receiver)
    # Among hosts that have equally much, prefer the one that serves the fewest: this forms a chain.
    best = max(shared, key=lambda other: (shared[other], -asked[other]), default=None)
    return best if best and shared[best] >= WORTH else None


def silent(receivers: Collection[S], now: float) -> list[S]:
    """The hosts that receive nothing from their source, although the source has more for them."""
    return [
        receiver
        for receiver in receivers
        if receiver.source and now - receiver.since > SILENT_S and receiver.lacks() & receiver.source.got
    ]


def detours(receivers: Collection[S], now: float) -> list[S]:
    """The hosts that wait for a slow source: each should fetch from its source's source instead."""
    led = []
    for receiver in receivers:
        source = receiver.source
        before = source.source if source else None
        if not source or not before or before in receiver.avoids or not before.can_serve:
            continue
        if now - max(receiver.routed, source.routed) < 2 * WINDOW_S:
            continue
        waits = receiver.weight(receiver.lacks() & source.got) < BEHIND // 2
        is_behind = before.weight(before.got & source.lacks()) >= BEHIND
        if waits and is_behind and receiver.lacks() & before.got and source.rate(now) < SLOW * before.peak:
            led.append(receiver)
    return led


def ranges(wanted: Collection[str], order: Sequence[str]) -> str:
    """The positions (from 1) of these pieces in a list, in the form that `sed -n` accepts: `1,15p;20,99p`."""
    runs = list[list[int]]()
    for place, digest in enumerate(order, 1):
        if digest in wanted and runs and runs[-1][1] == place - 1:
            runs[-1][1] = place
        elif digest in wanted:
            runs.append([place, place])
    return ";".join(f"{first},{last}p" for first, last in runs)
