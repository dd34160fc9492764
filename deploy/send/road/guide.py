"""What the hosts of a push answer, and what each is told then: one thread uses it, and holds all that is known.

A host that others do not reach, or that is silent, wrong or slow, is led around by routes.py, or served from here.
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
from .routes import HERE, Stop

# A host has so long to say what it has; from here something arrives all the time, as with a command's input
# (door/framing.py); and then the command has its time.
_READY_S = 120.0
# So long nothing leaves here while a host has not said what lies there: it may be what the others lack.
_ASKED_S = 1.5
_MOST_WORDS, _MOST_LINES = 200, 100_000
_CODE = digits(255)
_WHY = {
    "unreached": "cannot reach {source}",
    "cut": "got no more from {source}",
    "wrong": "got other bytes from {source} than it asked for",
    "silent": f"got nothing from {{source}} for {in_seconds(routes.SILENT_S)}",
    "slow": "waited for {source}, which is slow",
    "shut": "cannot ask {source}, which cannot open a port",
}


class Tell(Protocol):
    """Gets the progress of a host: bytes so far, of how many, and from whom they come. Any thread may call it."""

    def __call__(self, host: str, sent: int, total: int, source: str = "") -> None: ...


class Delivered(NamedTuple):
    """How the command ended; and the bytes of its input by where they came from: what was there came from nowhere."""

    done: Done
    sources: Counter[str]


class NoRoad(DeployError):
    """The host lacks what a road needs."""


class Delivery(Stop):
    """One cargo on its way to one host; or `offers`: a host that lacks nothing passes on what lies there of it."""

    def __init__(self, host: str, cargo: Cargo, line: Line, offers: bool = False) -> None:
        super().__init__(host, dict(cargo.pieces), since=time.monotonic())
        self.cargo, self.line, self.offers = cargo, line, offers
        self.ended, self.sources = Future[Delivered](), Counter[str]()
        self.key, self.is_ready, self.number, self.asked = "", False, "", self.since
        # Whether another push must bring the rest.
        self.is_cut = not offers
        # When the first of its bytes left here.
        self.began = 0.0
        self.words = {"out": list[str](), "err": list[str]()}

    def end(self, how: Delivered) -> None:
        """It has come there, or its command says why not."""
        with suppress(InvalidStateError):
            self.ended.set_result(how)

    def fail(self, fault: BaseException) -> None:
        """End it with this fault, if it has not ended."""
        with suppress(InvalidStateError):
            self.ended.set_exception(fault)
        self.line.close()


class Guide:
    """Hears what hosts say, and orders. `tell`, `note` and `rates` as Road has them."""

    def __init__(self, tell: Tell, note: Callable[[str], None], rates: Rates) -> None:
        self._tell, self._note, self._rates, self._is_measured = tell, note, rates, False
        self._deliveries, self._numbers = dict[Delivery, None](), count(1)
        # Who waits for the answer of its source, by the number of that question.
        self._asks = dict[str, Delivery]()

    def hear(self, delivery: Delivery, word: str, rest: str) -> None:
        """A line of a host's answer. Words that nobody knows are nothing."""
        self._deliveries.setdefault(delivery)
        if word in ("had", "got"):
            self._take(delivery, rest, new=word == "got")
        elif word == "ready" and not delivery.is_ready and (ready := READY.fullmatch(rest)):
            delivery.key, delivery.is_ready = ready[2] or "", True
            delivery.asks = delivery.serves = bool(delivery.key)
            self._meet(delivery, int(ready[1]) * 1024)
        elif word == "serving":
            self._connect(delivery, rest)
        elif word == "lost":
            number, _, why = rest.partition(" ")
            if number == delivery.number:
                self._leave(delivery, *why.partition(" ")[::2])
        elif (lines := delivery.words.get(word)) is not None:
            if len(lines) < _MOST_LINES:
                lines.append(f"{rest}\n")
        elif word == "end":
            self._end(delivery, _CODE(rest, "the code of a command"))
        elif word in ("failed", "gone"):
            self._lose(delivery, rest, is_gone=word == "gone")

    def look(self) -> None:
        """See to hosts that are silent or slow."""
        now = time.monotonic()
        self._set_off(now)
        for delivery in routes.silent(self._deliveries, now):
            self._leave(delivery, "silent")
        for delivery in routes.detours(self._deliveries, now):
            self._leave(delivery, "slow")
        self._let_go()
        for delivery in [*self._deliveries]:
            wait_s = framing.SLOWEST_OVER_S if delivery.is_ready else _READY_S
            if delivery.is_ready and not delivery.lacks():
                wait_s = framing.after_s(delivery.cargo.size)
            if now - delivery.since > wait_s and not delivery.ended.done() and not self._waits(delivery):
                self._lose(delivery, f"nothing moved for {in_seconds(wait_s)}")

    def _waits(self, delivery: Delivery) -> bool:
        """Whether its source has nothing that it lacks: if that is still for too long, it alone is lost."""
        source, lacks = delivery.source, delivery.lacks()
        return bool(source and lacks and not source.ended.done() and not source.got & lacks)

    def _let_go(self) -> None:
        """Once all that leaves here has come, hosts may go on without this machine."""
        still = [each for each in self._deliveries if not (each.ended.done() and each.is_cut)]
        if all(map(self._is_settled, still)):
            for delivery in still:
                delivery.line.stay()

    def _is_settled(self, delivery: Delivery) -> bool:
        source = delivery.source
        if not delivery.lacks() or delivery.ended.done():
            return True
        is_met = source and delivery.since > delivery.routed and delivery.lacks() <= source.sizes.keys()
        return bool(is_met and delivery.line.is_idle)

    def _take(self, delivery: Delivery, digest: str, new: bool) -> None:
        now, source = time.monotonic(), delivery.source
        delivery.line.land(digest)
        if not delivery.take(digest, now):
            return
        delivery.line.window = max(WINDOW, int(delivery.rate(now) * WINDOW_S))
        if new:
            # What the source has came from there; all else came from here.
            delivery.sources[source.host if source and digest in source.sizes else HERE] += delivery.sizes[digest]
        if not delivery.offers:
            self._tell(delivery.host, delivery.bytes, delivery.cargo.size, source.host if source else HERE)
        # The first host that has all, and had it from here, tells how fast the way from here is.
        if delivery.began and not delivery.lacks() and not self._is_measured:
            self._is_measured = True
            hosts = [each.host for each in self._deliveries]
            self._rates.take(hosts, delivery.sources[HERE], now - delivery.began)

    def _meet(self, delivery: Delivery, free: int) -> None:
        """It has said what lies there."""
        if delivery.offers:
            delivery.sizes = {digest: delivery.sizes[digest] for digest in delivery.got}
            delivery.end(Delivered(Done(0, "", ""), Counter()))
        else:
            _check_space(delivery, free)
        # What was there says nothing of how fast it gets the rest.
        delivery.marks, delivery.peak = [], 0.0
        self._set_off(time.monotonic())

    def _set_off(self, now: float) -> None:
        """Route whoever has said what lies there, once all have: last, so as the head of a chain, who has most. And
        whoever gets from here what another host has by now."""
        waits = any(not each.is_ready and not each.ended.done() for each in self._deliveries)
        for delivery in sorted(self._deliveries, key=lambda each: (each.bytes, each.routed)):
            if not delivery.is_ready or delivery.source or delivery.ended.done():
                continue
            if waits and now - delivery.asked < _ASKED_S:
                continue
            if not delivery.routed or self._is_lent(delivery):
                self._route(delivery)

    def _is_lent(self, delivery: Delivery) -> bool:
        source = routes.source_for(delivery, self._deliveries)
        return bool(source and delivery.weight(delivery.lacks() & source.got) >= routes.WORTH)

    def _route(self, delivery: Delivery) -> None:
        """Choose from whom a host gets what it lacks, and see to it."""
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
        """The source says where it can be asked; nowhere, if it says nothing that can be read."""
        number, _, where = rest.partition(" ")
        delivery, serving = self._asks.get(number), SERVING.fullmatch(where)
        if not delivery or delivery.source is not source or delivery.number != number:
            return
        del self._asks[number]
        if not serving:
            source.serves = False
            self._leave(delivery, "shut")
            return
        places = routes.ranges(source.sizes.keys(), [piece.digest for piece in delivery.cargo.pieces])
        delivery.line.order("from", number, places, *serving.groups()[:3], serving[4].strip())

    def _leave(self, delivery: Delivery, why: str, words: str = "") -> None:
        """A host gets no more from its source: it gets the rest elsewhere."""
        source = delivery.source
        if not source or not delivery.lacks() or delivery.ended.done():
            return
        delivery.avoids.add(source)
        if why == "wrong":
            source.serves = False
        self._route(delivery)
        reason = _WHY.get(why, _WHY["cut"]).format(source=source.host)
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
        """A host is lost: those that it served get the rest elsewhere. `is_gone`: its connection is."""
        host, detail = delivery.host, _shown(words, ": {}")
        if delivery.is_ready or is_gone:
            delivery.fail(DeployError(f"{host}: not all of it arrived{detail}", "push again: it continues from there"))
        else:
            delivery.is_cut = False
            delivery.fail(NoRoad(f"{host}: it cannot pass anything on{detail}", "push again"))
        delivery.serves = False
        for other in [*self._deliveries]:
            if other.source is delivery:
                self._leave(other, "cut")


def _shown(words: str, form: str) -> str:
    """A host's own words within ours."""
    return form.format(shortened(one_line(words), _MOST_WORDS)) if words.strip() else ""


def _check_space(delivery: Delivery, free: int) -> None:
    """Fail if what it lacks, and what is made of all, does not fit beside what it has."""
    try:
        refuse_full("~/.muster", "what comes", delivery.weight(delivery.lacks()) + delivery.cargo.room, free)
    except DeployError as fault:
        delivery.fail(fault)
