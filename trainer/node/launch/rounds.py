"""How the nodes of a run meet that all have to be there: in rounds, at one address. A round is over once each is in it.

A node that begins again opens the next round, and the others follow it. The first node's torchrun has the store of the
rounds, on a socket that was bound before; what lies there are numbers, labels and an address, which are checked. The
ranks get a store of their own for each round. No clock is compared with another host's.
"""

from __future__ import annotations

import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address

from torch.distributed import DistError, HashStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousStateError,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig

from muster.errors import TrainError

from ..files.share import Sharing
from ..membership import meeting
from ..membership.link import LinkLost
from . import stores
from .generation import Generation
from .standing import Standing

KEY, _CLOSED = "muster/round", " closed"
# Between two looks of a node that waits. They cost its machine nothing; a store that many ask at once they would cost.
_PAUSE_S, _PAUSE_OF_MANY_S, _MANY = 0.03, 0.1, 16
# So long nodes wait for one another's word once all have come: one may have gone meanwhile.
_STAY_S = 10.0
_RESOLVE_S, _READ_S, _RANKS_STORE_S, _JOIN_S, _PORT = 60.0, 60, 300.0, 600, 29400
# A node that goes away while files are shared makes the others meet again; this often, and no more.
_SHARE_ATTEMPTS = 5
_SHARE_HINT = "can the hosts reach each other's ports? a folder that the hosts share needs none of this: --mount"


class Rounds:
    """This node in the rounds of a run. `listener` listens on the meeting address already, on the first node.

    `sharing`: the nodes of a script share their files in each round.
    """

    at_once = False

    def __init__(self, config: LaunchConfig, listener: socket.socket | None, sharing: Sharing | None) -> None:
        asked, self._nodes, self._ranks = config.rdzv_configs, config.max_nodes, config.nproc_per_node
        self._run, self._sharing, self._held = config.run_id, sharing, listener
        self._pause_s = _PAUSE_S if self._nodes < _MANY else _PAUSE_OF_MANY_S
        self._join_s = float(asked.get("join_timeout", _JOIN_S))
        place = asked.get("rank")  # of torch's static rendezvous
        label = config.local_addr or socket.getfqdn() if place is None else f"node-{place:05d}"
        # Nodes are sorted by their labels; two may have the same.
        self._label = f"{ascii(label)[1:-1]} {secrets.token_hex(8)}"
        host, port = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=_PORT)
        # One node that was told a port, and nowhere to meet, has its ranks meet there.
        self._port = 0 if place is None or self._nodes > 1 else port
        self._address = address = meeting.resolve(host, _RESOLVE_S)
        stores.keep_ranks_on_loopback(address)
        self._store: Store = HashStore()
        self._number = 0
        self._ranks_store: TCPStore | None = None
        self._standing: Standing | None = None
        if self._nodes == 1:
            return
        if asked.get("is_host") == "1" or place == 0:
            self._held = listener or stores.listen(address, port)
        elif place is None and "is_host" not in asked:  # it is the first process that can bind the address
            with suppress(OSError):
                self._held = meeting.listen(address, port)
        if not self._held:
            self._address = meeting.this_end(address, port)
        self._store = stores.open_store(self._held, address, port, float(asked.get("read_timeout", _READ_S)))

    def next(self) -> Generation:
        """Wait until all nodes are in a round, and share files with them. Raises RendezvousError, TrainError."""
        for attempt in range(_SHARE_ATTEMPTS):
            try:
                with _connected():
                    generation = self._meet()
                    if self._sharing and self._nodes > 1:
                        self._sharing.attempt(generation.place, self._nodes, self._address, generation.first)
                    self._standing = Standing.of(generation)
                    return generation
            except LinkLost as fault:
                print(f"muster: the nodes meet again before this attempt: {fault}", file=sys.stderr)
                if attempt == _SHARE_ATTEMPTS - 1:
                    raise TrainError(f"the hosts could not share the script's files: {fault}", _SHARE_HINT) from fault
        raise AssertionError

    def waiting(self) -> bool:
        """Whether another node has begun the next round. Asked several times a second."""
        with _connected():
            if self._standing:
                self._standing.look()
            return self._now()[0] > self._number

    def is_closed(self) -> bool:
        """Whether a node has ended for good: there is no other round."""
        with _connected():
            return self._now()[1]

    def close(self) -> None:
        """Let there be no other round."""
        with suppress(DistError, RendezvousStateError):
            while not (now := self._now())[1]:
                self._store.compare_set(KEY, str(now[0]), f"{now[0]}{_CLOSED}")

    def _meet(self) -> Generation:
        end = time.monotonic() + self._join_s
        while True:
            if (number := self._open_round()) > self._number:
                self._number = number
                store = PrefixStore(f"{self._run}/{number}", self._store)
                before = store.add("came", 1) - 1
                if before < self._nodes:  # else all were here, and one of them is gone
                    store.set(str(before), f"{self._ranks} {self._label}")
                    if generation := self._agreed(store, end):
                        return generation
            self._store.compare_set(KEY, str(self._number), str(self._number + 1))

    def _agreed(self, store: Store, end: float) -> Generation | None:
        """This node's part in the round, once all have come and say so anew; None if one has gone, or begun another."""
        keys = [str(number) for number in range(self._nodes)]
        if not self._until(lambda: bool(store.check(keys)), end):
            if time.monotonic() > end:
                come = f"{store.add('came', 0)} of {self._nodes} nodes have come"
                raise RendezvousTimeoutError(f"{come} within {self._join_s:g} s")
            return None
        rows = sorted((label, ranks) for ranks, label in map(node_of, store.multi_get(keys)))
        labels, counts = [label for label, _ in rows], [ranks for _, ranks in rows]
        if self._label not in labels:
            return None
        if (place := labels.index(self._label)) == 0:
            self._ranks_store = None  # its port may be asked for once more
            self._ranks_store = stores.open_store(stores.listen(self._address, self._port), "", 0, _RANKS_STORE_S)
            store.set("store", f"{self._ranks_store.port} {self._address}")
        store.add("stays", 1)
        if not self._until(lambda: store.add("stays", 0) >= self._nodes, time.monotonic() + _STAY_S):
            return None
        port, address = meeting_place(store.get("store"))
        return Generation(place, len(rows), sum(counts[:place]), sum(counts), address, port, store)

    def _until(self, holds: Callable[[], bool], end: float) -> bool:
        """Wait for this; False if it is too late, or there is another round. Raises RendezvousClosedError."""
        while not holds():
            if self._open_round() > self._number or time.monotonic() > end:
                return False
            time.sleep(self._pause_s)
        return True

    def _open_round(self) -> int:
        number, closed = self._now()
        if closed:
            raise RendezvousClosedError("a node of this run has ended for good")
        return number

    def _now(self) -> tuple[int, bool]:
        now = round_of(self._store.compare_set(KEY, "", "1"))
        if now[0] < self._number:
            raise _strangers(b"an older round")
        return now


def round_of(stored: bytes) -> tuple[int, bool]:
    """The number of the present round, and whether it is the last. Raises RendezvousStateError, as the next two do."""
    number, closed = _read(rb"(\d{1,9})( closed)?", stored)
    return int(number), bool(closed)


def node_of(stored: bytes) -> tuple[int, str]:
    """The number of a node's ranks, and its label."""
    ranks, label = _read(rb"(\d{1,5}) ([ -~]{1,300})", stored)
    return int(ranks), label


def meeting_place(stored: bytes) -> tuple[int, str]:
    """Where the ranks meet: port and address."""
    port, address = _read(rb"(\d{1,5}) ([\w.:%]{1,100})", stored)
    try:
        return int(port), str(ip_address(address))
    except ValueError as fault:
        raise _strangers(stored) from fault


def _read(form: bytes, stored: bytes) -> list[str]:
    if not (value := re.fullmatch(form, stored)):
        raise _strangers(stored)
    return [(part or b"").decode() for part in value.groups()]


def _strangers(stored: bytes) -> RendezvousStateError:
    return RendezvousStateError(
        "somebody else wrote into the rendezvous of this run: "
        f"what lies there is not of it ({stored[:40]!a}), and Muster did not use it"
    )


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except DistError as fault:
        raise RendezvousConnectionError(f"The connection to the C10d store has failed: {fault}") from fault
