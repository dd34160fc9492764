"""What the hosts of a push answer, and what each is told then: one thread uses it, and holds all that is known.

A host that others do not reach, or that is silent, wrong or slow, is led around by routes.py, or served from here.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import NamedTuple, Protocol

from ...core.errors import DeployError
from ...core.fields import digits
from ...core.printable import one_line
from ...core.text import amount, in_seconds, shortened
from ...door.session import Done, Session
from . import routes
from .cargo import Cargo
from .line import READY, SERVING, WINDOW, WINDOW_S, Line
from .rates import Rates
from .routes import HERE, Stop

# A host has so long to say what it has; from here something arrives all the time, as with a command's input
# (door/framing.py); and then the command has its time.
_READY_S, _STILL_S, _AFTER_S, _AFTER_BYTES_A_SECOND = 120.0, 300.0, 900.0, 2 << 20
# How much faster a host must get it that was led around another.
_FASTER = 1.5
_SLACK, _MOST_WORDS, _MOST_LINES = 64 << 20, 200, 100_000
_KILOBYTES = digits(0, 1 << 50)
_WHY = {
    "unreached": "does not reach {source}",
    "cut": "got no more from {source}",
    "wrong": "got other bytes from {source} than it asked for",
    "silent": f"got nothing from {{source}} for {in_seconds(routes.SILENT_S)}",
    "slow": "waited for {source}, which is slow",
    "shut": "cannot ask {source}, which opens no port",
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


class Delivery:
    """One cargo on its way to one host; or `offers`: a host that lacks nothing passes on what lies there of it."""

    def __init__(self, name: str, session: Session, cargo: Cargo, offers: bool = False) -> None:
        sizes = {piece.digest: piece.size for piece in cargo.pieces}
        self.stop = Stop(name, session.host.name, sizes, since=time.monotonic())
        self.session, self.cargo, self.offers, self.line = session, cargo, offers, None
        self.ended, self.sources = Future[Delivered](), Counter[str]()
        self.key, self.is_ready, self.number, self.free = "", False, 0, 0
        # When the first of its bytes left here.
        self.began = 0.0
        self.out, self.err = list[str](), list[str]()
        # Which deliveries wait for its answer to `serve`.
        self.asked = deque[tuple[Delivery, int]]()

    line: Line | None

    @property
    def is_well(self) -> bool:
        """Whether the command ended with 0."""
        return self.ended.done() and not self.ended.exception() and not self.ended.result().done.code

    @property
    def is_cut(self) -> bool:
        """Whether another push must bring the rest."""
        had_no_road = self.ended.done() and isinstance(self.ended.exception(), NoRoad)
        return not (self.is_well or self.offers or had_no_road)

    def fail(self, fault: BaseException) -> None:
        """End it with this fault, if it has not ended."""
        with suppress(InvalidStateError):
            self.ended.set_exception(fault)
        if self.line:
            self.line.close()


class Guide:
    """Hears what hosts say, and orders. `tell`, `note` and `rates` as Road has them."""

    def __init__(self, tell: Tell, note: Callable[[str], None], rates: Rates) -> None:
        self._tell, self._note, self._rates, self._is_measured = tell, note, rates, False
        self._deliveries = dict[str, Delivery]()
        # Who was led around whom, when, and how fast that was; whether such is done at all.
        self._tried, self._detours = dict[str, tuple[float, str, float]](), True

    def hear(self, delivery: Delivery, word: str, rest: str) -> None:
        """A line of a host's answer. Words that nobody knows are nothing."""
        stop = delivery.stop
        self._deliveries.setdefault(stop.name, delivery)
        if word in ("had", "got"):
            self._take(delivery, rest, new=word == "got")
        elif word == "ready" and (key := READY.fullmatch(rest)):
            delivery.key, stop.serves = key[1], True
            (self._offer if delivery.offers else self._begin)(delivery)
        elif word == "alone" and delivery.offers:
            self._lose(delivery, rest)
        elif word == "alone" and not delivery.is_ready:
            self._begin(delivery)
        elif word in ("serving", "alone"):
            self._connect(delivery, rest if word == "serving" else "")
        elif word == "lost":
            number, _, why = rest.partition(" ")
            if number == str(delivery.number):
                self._leave(delivery, *why.partition(" ")[::2])
        elif word == "free":
            delivery.free = _KILOBYTES(rest, "free") * 1024
        elif word in ("out", "err"):
            lines = delivery.out if word == "out" else delivery.err
            if len(lines) < _MOST_LINES:
                lines.append(rest)
        elif word == "end":
            self._end(delivery, int(rest) if rest.isascii() and rest.isdigit() and len(rest) < 4 else 1)
        elif word in ("failed", "gone"):
            self._lose(delivery, rest)

    def look(self) -> None:
        """See to hosts that are silent or slow."""
        now, stops = time.monotonic(), self._stops()
        for stop in routes.silent(stops, now):
            self._leave(self._deliveries[stop.name], "silent", "")
        self._lead_around(now)
        self._let_go()
        for delivery in [*self._deliveries.values()]:
            still = now - delivery.stop.since
            wait_s = _STILL_S if delivery.is_ready else _READY_S
            if delivery.is_ready and not delivery.stop.lacks():
                wait_s = _AFTER_S + delivery.cargo.size / _AFTER_BYTES_A_SECOND
            if still > wait_s and not delivery.ended.done() and not self._waits(delivery):
                self._lose(delivery, f"nothing moved for {in_seconds(wait_s)}")

    def _waits(self, delivery: Delivery) -> bool:
        """Whether its source has nothing that it lacks: if that is still for too long, it alone is lost."""
        source = self._deliveries.get(delivery.stop.source)
        lacks = delivery.stop.lacks()
        return bool(source and lacks and not source.ended.done() and not source.stop.got & lacks)

    def _lead_around(self, now: float) -> None:
        """Lead hosts around slow ones; back, and never again, if what they ask then is the slow one."""
        for name, (since, slow, rate) in [*self._tried.items()]:
            if now - since > 2 * routes.WINDOW_S:
                del self._tried[name]
                stop = self._deliveries[name].stop
                if stop.lacks() and stop.rate(now) < _FASTER * rate:
                    self._detours = False
                    stop.avoids.discard(slow)
                    self._route(self._deliveries[name])
        for stop, _ in routes.detours(self._stops(), now) if self._detours else ():
            self._tried[stop.name] = (now, stop.source, self._deliveries[stop.source].stop.rate(now))
            self._leave(self._deliveries[stop.name], "slow", "")

    def _let_go(self) -> None:
        """Once all that leaves here has come, hosts may go on without this machine."""
        still = [each for each in self._deliveries.values() if each.line and not (each.ended.done() and each.is_cut)]
        if all(map(self._is_settled, still)):
            for delivery in still:
                if delivery.line:
                    delivery.line.stay()

    def _is_settled(self, delivery: Delivery) -> bool:
        stop, source = delivery.stop, self._deliveries.get(delivery.stop.source)
        if not stop.lacks() or delivery.ended.done():
            return True
        if not source or not delivery.line or not delivery.line.is_idle:
            return False
        return stop.since > stop.routed and stop.lacks() <= source.stop.sizes.keys()

    def order_all(self, word: str) -> None:
        """An order for every host."""
        for delivery in self._deliveries.values():
            if delivery.line:
                delivery.line.order(word)

    def _stops(self) -> dict[str, Stop]:
        return {name: delivery.stop for name, delivery in self._deliveries.items()}

    def _take(self, delivery: Delivery, digest: str, new: bool) -> None:
        stop, now = delivery.stop, time.monotonic()
        if delivery.line:
            delivery.line.land(digest)
        if not stop.take(digest, now):
            return
        if delivery.line:
            delivery.line.window = max(WINDOW, int(stop.rate(now) * WINDOW_S))
        source = self._deliveries[stop.source].stop.host if stop.source in self._deliveries else HERE
        if new and delivery.line:
            # What the source has came from there; all else came from here.
            passed_on = stop.source in self._deliveries and digest in self._deliveries[stop.source].stop.sizes
            delivery.sources[source if passed_on else HERE] += stop.sizes[digest]
        if not delivery.offers:
            self._tell(stop.host, stop.bytes, delivery.cargo.size, source)
        if not stop.lacks():
            self._measure(delivery)

    def _measure(self, delivery: Delivery) -> None:
        """The first host that has all, and had it from here, tells how fast the way from here is."""
        if delivery.began and not self._is_measured:
            self._is_measured = True
            hosts = [each.stop.host for each in self._deliveries.values()]
            self._rates.take(hosts, delivery.sources[HERE], delivery.stop.since - delivery.began)

    def _begin(self, delivery: Delivery) -> None:
        if not delivery.is_ready:
            delivery.is_ready = True
            _check_space(delivery)
            # What was there says nothing of how fast it gets the rest.
            delivery.stop.marks, delivery.stop.peak = [], 0.0
            self._lend(delivery)
            self._route(delivery)

    def _offer(self, delivery: Delivery) -> None:
        """It passes on what it has: those that get that from here get it there."""
        stop = delivery.stop
        if delivery.is_ready:
            return
        stop.sizes = {digest: stop.sizes[digest] for digest in stop.got}
        delivery.is_ready, stop.serves = True, stop.bytes >= routes.WORTH
        with suppress(InvalidStateError):
            delivery.ended.set_result(Delivered(Done(0, "", ""), Counter()))
        self._lend(delivery)

    def _lend(self, delivery: Delivery) -> None:
        """What lies there goes to no other from here: those that answered sooner get it there."""
        got = delivery.stop.got
        for other in [*self._deliveries.values()]:
            lent = sum(other.stop.sizes[digest] for digest in other.stop.lacks() & got)
            if other.is_ready and other.stop.source == HERE and lent >= routes.WORTH:
                self._route(other)

    def _route(self, delivery: Delivery) -> None:
        """Choose from whom a host gets what it lacks, and see to it."""
        stop, line = delivery.stop, delivery.line
        if not line or delivery.ended.done() or not stop.lacks():
            return
        stop.source, stop.since = HERE, time.monotonic()
        stop.routed = stop.since
        delivery.number += 1
        source = self._deliveries.get(routes.source_for(stop, self._stops())) if delivery.key else None
        if not source:
            delivery.began = delivery.began or stop.since
        if source and source.line:
            stop.source = source.stop.name
            line.order("stop")
            source.asked.append((delivery, delivery.number))
            source.line.order("serve", delivery.key)
        else:
            line.order("stop")
        shared = source.stop.sizes if source else {}
        line.put([
            piece
            for piece in dict.fromkeys(delivery.cargo.pieces)
            if piece.digest not in stop.got and piece.digest not in shared
        ])  # fmt: skip

    def _connect(self, source: Delivery, rest: str) -> None:
        """The source says where it can be asked; nowhere, if it says nothing that can be read."""
        if not source.asked:
            return
        delivery, number = source.asked.popleft()
        serving = SERVING.fullmatch(rest)
        if number != delivery.number or not delivery.line:
            return
        if not serving or not 1024 <= int(serving[1]) < 1 << 16 or not serving[4]:
            source.stop.serves = False
            self._leave(delivery, "shut", "")
            return
        shared = delivery.stop.sizes.keys() & source.stop.sizes.keys()
        places = routes.ranges(shared, [piece.digest for piece in delivery.cargo.pieces])
        where = (serving[1], serving[2], serving[3], *serving[4].split())
        delivery.line.order("from", str(number), places, *where)

    def _leave(self, delivery: Delivery, why: str, words: str) -> None:
        """A host gets no more from its source: it gets the rest elsewhere."""
        source = self._deliveries.get(delivery.stop.source)
        if not source or not delivery.stop.lacks() or delivery.ended.done():
            return
        delivery.stop.avoids.add(source.stop.name)
        if why == "wrong":
            source.stop.serves = False
        self._route(delivery)
        now_from = self._deliveries.get(delivery.stop.source)
        reason = _WHY.get(why, _WHY["cut"]).format(source=source.stop.host)
        detail = f" ({shortened(one_line(words), _MOST_WORDS)})" if words.strip() else ""
        self._note(f"{delivery.stop.host} {reason}{detail}: it gets the rest from "
                   f"{now_from.stop.host if now_from else HERE}")  # fmt: skip

    def _end(self, delivery: Delivery, code: int) -> None:
        done = Done(code, "".join(f"{line}\n" for line in delivery.out), "".join(f"{line}\n" for line in delivery.err))
        if not code and delivery.stop.lacks():
            self._lose(delivery, "its command ended early")
            return
        with suppress(InvalidStateError):
            delivery.ended.set_result(Delivered(done, delivery.sources))
        if code and delivery.line:
            delivery.line.close()

    def _lose(self, delivery: Delivery, words: str) -> None:
        """A host is gone: those that it served get the rest elsewhere."""
        detail = f": {shortened(one_line(words), _MOST_WORDS)}" if words.strip() else ""
        host = delivery.stop.host
        if delivery.is_ready:
            delivery.fail(DeployError(f"{host}: not all of it arrived{detail}", "push again: it continues from there"))
        else:
            delivery.fail(NoRoad(f"{host}: nothing can be passed on there{detail}", "push again"))
        delivery.stop.serves = False
        for waiting, number in [*delivery.asked]:
            if number == waiting.number:
                self._leave(waiting, "shut", "")
        delivery.asked.clear()
        for other in self._deliveries.values():
            if other.stop.source == delivery.stop.name:
                self._leave(other, "cut", "")


def _check_space(delivery: Delivery) -> None:
    """Fail if what it lacks, and what is made of all, does not fit beside what it has."""
    lacks = sum(delivery.stop.sizes[digest] for digest in delivery.stop.lacks())
    if delivery.free < (need := lacks + delivery.cargo.room + _SLACK):
        text = f"not enough disk space in ~/.muster: it needs {amount(need)} more, {amount(delivery.free)} are free"
        delivery.fail(DeployError(text, "on that host: df -h ~; `muster clean` shows what Muster keeps there"))
