"""How the nodes of a run meet that all have to be there: in rounds, at one address. A round is over once each is in it.

A node that begins again opens the next round, and the others then follow it. What is known of a round is one value in
a store on the meeting address, which the first node's torchrun opens on a socket that was bound before: JSON that is
checked field by field. The ranks get a store of their own for each round. No clock is compared with another host's.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

from torch.distributed import HashStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousParameters,
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

KEY = "muster/round"
# Between two looks of a node that waits. They cost its machine nothing; a store that many ask at once they would cost.
_PAUSE_S, _PAUSE_OF_MANY_S, _MANY = 0.03, 0.1, 16
# So long nodes wait for one another's word once all have come: one may have gone meanwhile.
_THERE_S = 10.0
_RESOLVE_S, _RANKS_STORE_S, _JOIN_S, _PORT = 60.0, 300.0, 600, 29400
_MOST_BYTES, _MOST_RANKS = 1 << 20, 1 << 16
# A node that goes away while files are shared makes the others meet again; this often, and no more.
_SHARE_ATTEMPTS = 5
_SHARE_HINT = "can the hosts reach each other's ports? a folder that the hosts share needs none of this: --mount"


@dataclass(frozen=True)
class Round:
    """Who is `here`: by the label of each node, by which they are sorted, the process that stands for it and its number
    of ranks. `store`: where the ranks meet, once the first node has said so.
    """

    number: int = 1
    here: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    store: str = ""
    closed: bool = False

    def text(self) -> str:
        """As it lies in the store."""
        return json.dumps(vars(self))

    @classmethod
    def read(cls, stored: bytes) -> Round:
        """What lies in the store. Raises RendezvousStateError for what no node writes: a stranger did."""
        try:
            if len(stored) > _MOST_BYTES:
                raise ValueError(f"{len(stored)} bytes")
            value = json.loads(stored)
            here = {_label(label): (_typed(str, who), _count(ranks)) for label, (who, ranks) in value["here"].items()}
            made = cls(_typed(int, value["number"]), here, _place(value["store"]), _typed(bool, value["closed"]))
            if made.text().encode() != stored:
                raise ValueError("more than a round")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as fault:
            raise _strangers(type(fault).__name__) from fault
        return made


class Rounds:
    """This node in the rounds of a run. `listener` listens on the meeting address already, on the first node.

    `sharing`: the nodes of a script share its files in each round.
    """

    at_once = False

    def __init__(self, config: LaunchConfig, listener: socket.socket | None, sharing: Sharing | None) -> None:
        asked = RendezvousParameters(
            config.rdzv_backend,
            config.rdzv_endpoint,
            config.run_id,
            config.min_nodes,
            config.max_nodes,
            config.local_addr,
            **config.rdzv_configs,
        )
        self._nodes, self._run, self._sharing, self._held = config.max_nodes, config.run_id, sharing, listener
        self._me = (secrets.token_hex(8), config.nproc_per_node)
        self._pause_s = _PAUSE_S if self._nodes < _MANY else _PAUSE_OF_MANY_S
        self._join_s = asked.get_as_int("join_timeout", _JOIN_S) or _JOIN_S
        place = asked.get_as_int("rank", 0) if config.rdzv_backend == "static" else None
        self._label = (
            f"node-{place:05d}" if place is not None else config.local_addr or f"{socket.getfqdn()}-{os.getpid()}"
        )
        host, port = parse_rendezvous_endpoint(asked.endpoint, default_port=_PORT)
        # One node that was told a port, and nowhere to meet, has its ranks meet there.
        self._port = port if place is not None and self._nodes == 1 else 0
        address = meeting.resolve(host, _RESOLVE_S)
        stores.keep_ranks_on_loopback(address)
        self._address, self._store = address, self._meeting_store(asked, address, port, place)
        self._number = 0
        self._ranks_store: TCPStore | None = None
        self._standing: Standing | None = None

    def _meeting_store(self, asked: RendezvousParameters, address: str, port: int, place: int | None) -> Store:
        if self._nodes == 1:
            return HashStore()
        is_host = asked.get_as_bool("is_host") if place is None else place == 0
        if is_host:
            self._held = self._held or stores.listen(address, port)
        elif is_host is None:  # no setting says who the host is: it is the first process that can bind the address
            with suppress(OSError):
                self._held = meeting.listen(address, port)
        listener, self._held = self._held, None
        if not listener:
            self._address = meeting.this_end(address, port)
        return stores.open_store(listener, address, port, asked.get_as_int("read_timeout", 60) or 60)

    def next(self) -> Generation:
        """Wait until all nodes are in a round, and share files with them. Raises RendezvousError, TrainError."""
        for attempt in range(_SHARE_ATTEMPTS):
            generation = self._meet()
            try:
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
        if self._standing:
            self._standing.look()
        return self._read().number > self._number

    def is_closed(self) -> bool:
        """Whether a node has ended for good: there is no other round."""
        return self._read().closed

    def close(self) -> None:
        """Let there be no other round."""
        with suppress(RendezvousConnectionError, RendezvousStateError):
            while not (now := self._read()).closed:
                self._write(now, replace(now, closed=True))

    def _meet(self) -> Generation:
        end = time.monotonic() + self._join_s
        while True:
            now = self._enter(end)
            places = sorted(now.here)
            if self._label == places[0] and not now.store:
                self._ranks_store = None  # its port may be asked for once more
                self._ranks_store = stores.open_store(stores.listen(self._address, self._port), "", 0, _RANKS_STORE_S)
                self._write(now, replace(now, store=f"{self._address} {self._ranks_store.port}"))
            if agreed := self._when_all_are_there(now.number):
                break
        place, counts = places.index(self._label), [agreed.here[label][1] for label in places]
        address, _, port = agreed.store.partition(" ")
        store = PrefixStore(f"{self._run}/{agreed.number}", self._store)
        return Generation(place, len(places), sum(counts[:place]), sum(counts), address, int(port), store)

    def _enter(self, end: float) -> Round:
        """The next round in which all nodes are, this one among them."""
        while True:
            now = self._read()
            if now.closed:
                raise RendezvousClosedError("a node of this run has ended for good")
            whole, mine = len(now.here) >= self._nodes, now.here.get(self._label) == self._me
            if whole and mine and now.number > self._number:
                self._number = now.number
                return now
            if whole:
                self._write(now, Round(now.number + 1, {self._label: self._me}))
            elif not mine:
                self._write(now, replace(now, here={**now.here, self._label: self._me}))
            elif time.monotonic() > end:
                there = f"{len(now.here)} of {self._nodes} nodes have come"
                raise RendezvousTimeoutError(f"{there} within {self._join_s} s: {', '.join(sorted(now.here))}")
            else:
                time.sleep(self._pause_s)

    def _when_all_are_there(self, number: int) -> Round | None:
        """The round once each node has said that it has begun; None if one has gone, and the next round with it."""
        store = PrefixStore(f"{self._run}/{number}", self._store)
        store.add("there", 1)
        end = time.monotonic() + _THERE_S
        while (now := self._read()).number == number and time.monotonic() < end:
            if now.store and store.add("there", 0) >= self._nodes:
                return now
            time.sleep(self._pause_s / 3)
        if now.number == number:
            self._write(now, Round(number + 1, {self._label: self._me}))
        return None

    def _read(self) -> Round:
        now = Round.read(self._set("", Round().text()))
        if now.number < self._number:
            raise _strangers("an older round")
        return now

    def _write(self, before: Round, after: Round) -> None:
        """Change the round, unless another node has done so: the next look says."""
        self._set(before.text(), after.text())

    def _set(self, before: str, after: str) -> bytes:
        try:
            return bytes(self._store.compare_set(KEY, before, after))
        except (ValueError, RuntimeError, TimeoutError) as fault:
            raise RendezvousConnectionError(f"The connection to the C10d store has failed: {fault}") from fault


def _strangers(what: str) -> RendezvousStateError:
    return RendezvousStateError(
        f"somebody else wrote into the rendezvous of this run: the data there is not a round of it ({what}), and "
        "Muster did not use it"
    )


def _label(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a label with control characters")
    return text


def _count(value: object) -> int:
    count: int = _typed(int, value)
    if not 0 < count <= _MOST_RANKS:
        raise ValueError("no number of ranks")
    return count


def _place(value: object) -> str:
    text: str = _typed(str, value)
    address, _, port = text.partition(" ")
    if text and not (ip_address(address) and port.isdecimal()):
        raise ValueError("no address")
    return text


def _typed(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} instead of {kind.__name__}")
    return value
