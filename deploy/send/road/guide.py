"""Reads what the hosts of a push report, and sends each its next orders. One thread uses it, and holds all state.

If a host cannot be reached by others, or is silent, sends wrong bytes or is slow, the hosts that fetch from it get
another source (routes.py), or the rest from this machine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import count
from typing import NamedTuple, Protocol

from ...core.errors import DeployError
from ...core.fields import digits
from ...core.printable import one_line
from ...core.text import in_seconds, shortened
from ...door import framing
from ...door.session import Done
from ..space import refuse_full
from . import routes
from .cargo import Cargo
from .line import READY, SERVING, WINDOW, WINDOW_S, Line
from .rates import Rates
from .routes import HERE, Receiver

# How long a host may take to report which pieces it has. After that, bytes must keep arriving as with any command's
# input (door/framing.py); and once all have arrived, the command gets its own time.
_READY_S = 120.0
# Until every host has reported its pieces, this machine waits this long before it sends: one host may have what the
# others lack.
_ASKED_S = 1.5
_MOST_WORDS, _MOST_LINES = 200, 100_000
_CODE = digits(255)
_REASONS = {
    "unreached": "cannot reach {source}",
    "cut": "got no more from {source}",
    "wrong": "got other bytes from {source} than it asked for",
    "silent": f"got nothing from {{source}} for {in_seconds(routes.SILENT_S)}",
    "slow": "waited for {source}, which is slow",
    "shut": "cannot ask {source}, which cannot open a port",
}


class Tell(Protocol):
    """Gets the progress of a host: bytes so far, the total, and the source of the bytes. Any thread may call it."""

    def __call__(self, host: str, sent: int, total: int, source: str = "") -> None: ...


class Delivered(NamedTuple):
    """How the command ended; and the bytes of its input by their source. Bytes already there have no source."""

    done: Done
    sources: Counter[str]


class NoRoad(DeployError):
    """Raised if nothing can be passed on at the host: the road's script failed, or was silent, before it was ready."""


class Delivery(Receiver):
    """One cargo on its way to one host. `offers`: the host lacks nothing, and only passes on pieces that it has."""

    def __init__(self, host: str, cargo: Cargo, line: Line, offers: bool = False) -> None:
        super().__init__(host, dict(cargo.pieces), since=time.monotonic())
        self.cargo, self.line, self.offers = cargo, line, offers
        self.ended, self.sources = Future[Delivered](), Counter[str]()
        self.key, self.is_ready, self.number, self.asked = "", False, "", self.since
        # Whether a later push must send the rest.
        self.is_cut = not offers
        # When its first bytes left this machine.
        self.began = 0.0
        self.words = {"out": list[str](), "err": list[str]()}

    def end(self, how: Delivered) -> None:
        """Record how the command ended: the cargo arrived, or the command reports why not."""
        with suppress(InvalidStateError):
            self.ended.set_result(how)

    def fail(self, fault: BaseException) -> None:
        """End the delivery with this fault, unless it has ended already."""
        with suppress(InvalidStateError):
            self.ended.set_exception(fault)
        self.line.close()


class Guide:
    """Reads the hosts' reports and gives orders. `tell`, `note` and `rates`: as in Road."""

    def __init__(self, tell: Tell, note: Callable[[str], None], rates: Rates) -> None:
        self._tell, self._note, self._rates, self._is_measured = tell, note, rates, False
        self._deliveries, self._numbers = dict[Delivery, None](), count(1)
        # The deliveries that wait for their source to open a port, by the number of the request.
        self._asks = dict[str, Delivery]()

    def handle_line(self, delivery: Delivery, word: str, rest: str) -> None:
        """Handle one line of a host's output. Lines with an unknown word are ignored."""
        self._deliveries.setdefault(delivery)
        if word in ("had", "got"):
            self._take(delivery, rest, new=word == "got")
        elif word == "ready" and not delivery.is_ready and (ready := READY.fullmatch(rest)):
            delivery.key, delivery.is_ready = ready[2] or "", True
            delivery.can_fetch = delivery.can_serve = bool(delivery.key)
            self._take_ready(delivery, int(ready[1]) * 1024)
        elif word == "serving":
            self._connect(delivery, rest)
        elif word == "lost":
            number, _, why = rest.partition(" ")
            if number == delivery.number:
                self._change_source(delivery, *why.partition(" ")[::2])
        elif (lines := delivery.words.get(word)) is not None:
            if len(lines) < _MOST_LINES:
                lines.append(f"{rest}\n")
        elif word == "end":
            self._end(delivery, _CODE(rest, "the code of a command"))
        elif word in ("failed", "gone"):
            self._lose(delivery, rest, is_gone=word == "gone")

    def check_hosts(self) -> None:
        """Find hosts that are silent or slow, and act on it."""
        now = time.monotonic()
        self._route_waiting(now)
        for delivery in routes.silent(self._deliveries, now):
            self._change_source(delivery, "silent")
        for delivery in routes.detours(self._deliveries, now):
            self._change_source(delivery, "slow")
        self._allow_staying()
        for delivery in [*self._deliveries]:
            wait_s = framing.SLOWEST_OVER_S if delivery.is_ready else _READY_S
            if delivery.is_ready and not delivery.lacks():
                wait_s = framing.limit_after_input_s(delivery.cargo.size)
            if now - delivery.since > wait_s and not delivery.ended.done() and not self._waits(delivery):
                self._lose(delivery, f"nothing moved for {in_seconds(wait_s)}")

    def _waits(self, delivery: Delivery) -> bool:
        """Whether a host waits because its source has no piece for it. If that lasts too long, the source is lost."""
        source, lacks = delivery.source, delivery.lacks()
        return bool(source and lacks and not source.ended.done() and not source.got & lacks)

    def _allow_staying(self) -> None:
        """Once everything that must leave this machine has arrived, allow the hosts to continue without it."""
        still = [each for each in self._deliveries if not (each.ended.done() and each.is_cut)]
        if all(map(self._is_settled, still)):
            for delivery in still:
                delivery.line.allow_alone()

    def _is_settled(self, delivery: Delivery) -> bool:
        source = delivery.source
        if not delivery.lacks() or delivery.ended.done():
            return True
        is_met = source and delivery.since > delivery.routed and delivery.lacks() <= source.sizes.keys()
        return bool(is_met and delivery.line.is_idle)

    def _take(self, delivery: Delivery, digest: str, new: bool) -> None:
        now, source = time.monotonic(), delivery.source
        delivery.line.confirm(digest)
        if not delivery.add_piece(digest, now):
            return
        delivery.line.window = max(WINDOW, int(delivery.rate(now) * WINDOW_S))
        if new:
            # Pieces on the source's list came from the source; all others came from this machine.
            delivery.sources[source.host if source and digest in source.sizes else HERE] += delivery.sizes[digest]
        if not delivery.offers:
            self._tell(delivery.host, delivery.bytes, delivery.cargo.size, source.host if source else HERE)
        # The first host that has everything, and got it from this machine, shows how fast the way from here is.
        if delivery.began and not delivery.lacks() and not self._is_measured:
            self._is_measured = True
            hosts = [each.host for each in self._deliveries]
            self._rates.record(hosts, delivery.sources[HERE], now - delivery.began)

    def _take_ready(self, delivery: Delivery, free: int) -> None:
        """Handle that a host has reported all the pieces it already has."""
        if delivery.offers:
            delivery.sizes = {digest: delivery.sizes[digest] for digest in delivery.got}
            delivery.end(Delivered(Done(0, "", ""), Counter()))
        else:
            _check_space(delivery, free)
        # Pieces that were already there do not show how fast the host gets the rest.
        delivery.marks, delivery.peak = [], 0.0
        self._route_waiting(time.monotonic())

    def _route_waiting(self, now: float) -> None:
        """Choose sources for the hosts that have reported their pieces, once all hosts have.

        The host that has the most comes last, and so becomes the head of the chain. A host that gets pieces from this
        machine is routed again once another host has them.
        """
        waits = any(not each.is_ready and not each.ended.done() for each in self._deliveries)
        for delivery in sorted(self._deliveries, key=lambda each: (each.bytes, each.routed)):
            if not delivery.is_ready or delivery.source or delivery.ended.done():
                continue
            if waits and now - delivery.asked < _ASKED_S:
                continue
            if not delivery.routed or self._has_new_source(delivery):
                self._route(delivery)

    def _has_new_source(self, delivery: Delivery) -> bool:
        source = routes.source_for(delivery, self._deliveries)
        return bool(source and delivery.weight(delivery.lacks() & source.got) >= routes.WORTH)

    def _route(self, delivery: Delivery) -> None:
        """Choose where a host gets what it lacks, and give the orders for it."""
        if delivery.ended.done() or not delivery.lacks():
            return
        delivery.source, delivery.since = None, time.monotonic()
        delivery.routed = delivery.since
        delivery.number = str(next(self._numbers))
        delivery.line.order("stop")
        if source := routes.source_for(delivery, self._deliveries):
            delivery.source = source
            self._asks[delivery.number] = delivery
            source.line.order("serve", delivery.number, delivery.key)
        else:
            delivery.began = delivery.began or delivery.since
        from_here = delivery.lacks() - (source.sizes.keys() if source else set())
        delivery.line.put([piece for piece in dict.fromkeys(delivery.cargo.pieces) if piece.digest in from_here])

    def _connect(self, source: Delivery, rest: str) -> None:
        """Tell a host where to connect to its source; if the source reports no usable address, choose another."""
        number, _, where = rest.partition(" ")
        delivery, serving = self._asks.get(number), SERVING.fullmatch(where)
        if not delivery or delivery.source is not source or delivery.number != number:
            return
        del self._asks[number]
        if not serving:
            source.can_serve = False
            self._change_source(delivery, "shut")
            return
        places = routes.ranges(source.sizes.keys(), [piece.digest for piece in delivery.cargo.pieces])
        delivery.line.order("from", number, places, *serving.groups()[:3], serving[4].strip())

    def _change_source(self, delivery: Delivery, why: str, words: str = "") -> None:
        """Stop getting pieces from the host's source, and get the rest elsewhere."""
        source = delivery.source
        if not source or not delivery.lacks() or delivery.ended.done():
            return
        delivery.avoids.add(source)
        if why == "wrong":
            source.can_serve = False
        self._route(delivery)
        reason = _REASONS.get(why, _REASONS["cut"]).format(source=source.host)
        now_from = delivery.source.host if delivery.source else HERE
        self._note(f"{delivery.host} {reason}{_shown(words, ' ({})')}: it gets the rest from {now_from}")

    def _end(self, delivery: Delivery, code: int) -> None:
        if not code and delivery.lacks():
            self._lose(delivery, "its command ended early")
            return
        delivery.is_cut = code != 0
        delivery.end(Delivered(Done(code, *map("".join, delivery.words.values())), delivery.sources))
        if code:
            delivery.line.close()

    def _lose(self, delivery: Delivery, words: str, is_gone: bool = False) -> None:
        """Give up a host; the hosts that it served get the rest elsewhere. `is_gone`: its connection has ended."""
        host, detail = delivery.host, _shown(words, ": {}")
        if delivery.is_ready or is_gone:
            delivery.fail(DeployError(f"{host}: not all of it arrived{detail}", "push again: it continues from there"))
        else:
            delivery.is_cut = False
            delivery.fail(NoRoad(f"{host}: it cannot pass anything on{detail}", "push again"))
        delivery.can_serve = False
        for other in [*self._deliveries]:
            if other.source is delivery:
                self._change_source(other, "cut")


def _shown(words: str, form: str) -> str:
    """A host's own words, placed in our message; empty if there are none."""
    return form.format(shortened(one_line(words), _MOST_WORDS)) if words.strip() else ""


def _check_space(delivery: Delivery, free: int) -> None:
    """Fail the delivery if the disk has no room for the pieces that the host lacks and for what the command writes."""
    try:
        refuse_full("~/.muster", "what comes", delivery.weight(delivery.lacks()) + delivery.cargo.room, free)
    except DeployError as fault:
        delivery.fail(fault)
