"""The road: what several hosts need leaves this machine once, and the hosts pass it on to each other.

A command on a host gets a cargo as its input, as with `Session.run`. A host that lacks pieces fetches them from another
host of this push that has them, or is getting them. It fetches them over an SSH server that the user runs on that other
host for this push alone (scripts/road.sh): with keys made for this push, a single allowed command, and only this push's
pieces. guide.py decides which host fetches from which.
"""

from __future__ import annotations

import queue
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress

from ...core.errors import DeployError
from ...core.scripts import Scripts
from ...door.session import Session
from .cargo import Cargo, Part, Piece, of_host
from .guide import Delivered, Delivery, Guide, NoRoad, Tell
from .line import Line
from .rates import SMALL, Rates
from .routes import HERE

_PIECE = re.compile(r"([0-9a-f]{64}) ([1-9][0-9]{0,9})")
# An engine sends the first byte of a large image only after it has read all of it: 23 s for 1 GB.
_HOLD_S, _MOST_LINES = 1800.0, 100_000
_SCRIPT = Scripts(__file__)
_TICK_S, _CLOSE_S = 0.1, 3.0


class Road:
    """Passes pieces on between the hosts of one push, until the `with` block ends. Several threads may deliver.

    `hosts`: the number of hosts.
    `tell` gets the progress. `note` gets a sentence when a host is told to avoid another.
    `rates`: how fast earlier pushes sent to each host.
    """

    def __init__(self, hosts: int, tell: Tell, note: Callable[[str], None], rates: Rates | None = None) -> None:
        self._hosts, self.tell, self._rates = hosts, tell, rates or Rates()
        self._guide, self._token = Guide(tell, note, self._rates), secrets.token_hex(16)
        self._events: queue.SimpleQueue[tuple[Delivery, str, str] | None] = queue.SimpleQueue()
        self._lock, self._deliveries = threading.Lock(), list[Delivery]()
        self._offering, self._offered = list[Session](), set[str]()

    def __enter__(self) -> Road:
        threading.Thread(target=self._serve, daemon=True, name="muster-road").start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            lines = [delivery.line for delivery in self._deliveries]
            # If a host still lacks pieces, the others keep theirs: the next push fetches them from there.
            is_cut = any(delivery.is_cut for delivery in self._deliveries)
        until = time.monotonic() + _CLOSE_S
        for line in lines:
            line.order("over" if is_cut else "done")
        for line in lines:
            line.wait(max(0.0, until - time.monotonic()))
            line.close()
        self._events.put(None)
        self._rates.save()

    def offer(self, sessions: Sequence[Session]) -> None:
        """Let these hosts, which lack nothing, pass on the pieces that a push that was cut left on them."""
        self._offering = [*sessions]

    def hold(self, session: Session, image: str, layers: Sequence[str], step: int, room: int) -> dict[str, Part]:
        """Cut layers that this host's engine has into pieces, so that other hosts get them there and not from here.

        `step`: the piece size in bytes.
        `room`: how many bytes of disk the layers may take.
        Raises DeployError if the engine lacks a layer, or the host cannot pass anything on.
        """
        host, rows, pieces, come = session.name, dict[str, list[Piece]](), list[Piece](), 0
        words = (str(step), str(room), image, *(layer.removeprefix("sha256:") for layer in layers))
        with closing(session.stream(_SCRIPT("hold", *words))) as stream:
            for _ in range(_MOST_LINES):
                line = stream.read_line(_HOLD_S).decode(errors="replace")
                # A host reads a whole piece into its memory.
                if (row := _PIECE.fullmatch(line)) and int(row[2]) <= step:
                    pieces.append(Piece(row[1], int(row[2])))
                    come += pieces[-1].size
                    self.tell(host, come, max(come, room), f"{host}'s engine")
                elif line == "end":
                    break
                else:
                    layer = line.replace("layer ", "sha256:")
                    if layer in layers:
                        rows[layer] = pieces
                    pieces = []
        if not all(rows.get(layer) for layer in layers):
            raise DeployError(f"{host}: its engine does not give all layers", "push again")
        parts = {layer: of_host(host, tuple(rows[layer])) for layer in layers}
        cargo = Cargo([*parts.values()])
        self._begin(session, (), cargo).ended.result()
        with self._lock:
            self._offered |= dict(cargo.pieces).keys()
        return parts

    def send(self, session: Session, argv: Sequence[str], cargo: Cargo) -> Delivered:
        """Run a command on a host with this cargo as its input, by the road if that is worth it.

        Raises DeployError if the host did not take all of it.
        """
        host, began = session.name, time.monotonic()
        if not self._rates.is_faster_directly(host, cargo.size, self._hosts):
            with suppress(NoRoad):
                return self.deliver(session, argv, cargo)
        done = session.run(argv, input=self._counted(host, cargo), moving=True, check=False)
        self._rates.check(host, time.monotonic() - began)
        return Delivered(done, Counter({HERE: cargo.size}))

    def deliver(self, session: Session, argv: Sequence[str], cargo: Cargo) -> Delivered:
        """Run a command on a host with this cargo as its input, by the road.

        Raises NoRoad if the road's script fails or is silent before the host is ready (it may lack a program that the
        road needs), DeployError if the connection ends or the cargo does not arrive completely.
        """
        self.tell(session.name, 0, cargo.size)
        delivery, sizes = self._begin(session, argv, cargo), dict(cargo.pieces)
        with self._lock:
            new = sizes.keys() - self._offered
            self._offered |= new
        for other in self._offering if sum(sizes[digest] for digest in new) > SMALL else ():
            self._begin(other, (), cargo)
        return delivery.ended.result()

    def _begin(self, session: Session, argv: Sequence[str], cargo: Cargo) -> Delivery:
        def tell(word: str, rest: str) -> None:
            self._events.put((delivery, word, rest))

        line = Line(session, self._token, argv, cargo, tell)
        delivery = Delivery(session.name, cargo, line, offers=not argv)
        with self._lock:
            self._deliveries.append(delivery)
        tell("asked", "")
        line.begin()
        return delivery

    def _counted(self, host: str, cargo: Cargo) -> Iterator[bytes]:
        """All chunks of the cargo; reports progress after each chunk that the connection took."""
        sent = 0
        self.tell(host, 0, cargo.size, HERE)
        for chunk in cargo.chunks():
            yield chunk
            sent += len(chunk)
            self.tell(host, sent, cargo.size, HERE)

    def _serve(self) -> None:
        looked = time.monotonic()
        while True:
            try:
                with suppress(queue.Empty):
                    event = self._events.get(timeout=_TICK_S)
                    if event is None:
                        return
                    try:
                        self._guide.handle_line(*event)
                    except DeployError as fault:
                        event[0].fail(fault)
                if time.monotonic() - looked >= _TICK_S:
                    self._guide.check_hosts()
                    looked = time.monotonic()
            except BaseException as fault:  # a fault in Muster itself: no host may wait forever
                for delivery in self._deliveries:
                    delivery.fail(fault)
                raise
