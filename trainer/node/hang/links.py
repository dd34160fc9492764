"""Connections of a node's ranks whose other end does not answer, from /proc/net. Standard library only.

TCP resends data that is not acknowledged, and the kernel counts how often (tcp_retries2 in ip-sysctl.txt). A host
acknowledges data even for processes that are stuck, so a growing count shows that a link or a host fails.

While a link fails, the node also calls the machines at the other ends of its ranks' connections: a node that is cut off
from several machines often has data to send to only one of them.
"""

from __future__ import annotations

import ipaddress
import os
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .. import processes
from ..ending.rank_lives import Life

# If the round trip is short, the fourth repetition is sent 3 s after the first byte that was not acknowledged.
_REPEATED, _REPEATED_CALL = 4, 3
_ESTABLISHED, _CALLS, _LISTENS = "01", "02", "0A"
_REPEATS_TIMER, _PROBES_TIMERS, _PROBED = "01", ("02", "04"), 4
_BACKLOG_BYTES = 32 << 10
_MOST = 64
# Looks are 2 s apart. A connection is reported as unanswered if it was so in the last two looks, and as crowded if it
# was so in 5 of the last 6.
_EVERY_SECONDS, _LOOKS, _CROWDED_LOOKS = 2.0, 6, 5
# The ports to call. A machine that answers refuses a call to a port on which nothing listens. gloo and NCCL need these
# ports open between the hosts anyway.
_PORTS, _CALL_SECONDS = range(33_000, 60_000), 3.0
CALL = "muster-call"


@dataclass(frozen=True)
class Connection:
    """A connection. `unanswered`: for seconds, the other end has not acknowledged what was sent."""

    own: str
    peer: str
    inode: str
    unanswered: bool
    waiting_bytes: int


def busy_connections(texts: Iterable[str]) -> list[Connection]:
    """The connections in /proc/net/tcp and tcp6 (`texts`) that are unanswered, or have much to send."""
    return [of for of in connections(texts) if of.unanswered or of.waiting_bytes >= _BACKLOG_BYTES][:_MOST]


def connections(texts: Iterable[str]) -> list[Connection]:
    """All connections in /proc/net/tcp and tcp6 (`texts`); `waiting_bytes` is 0 unless data is being resent."""
    sockets = []
    for text in texts:
        for line in text.splitlines()[1:]:
            with suppress(ValueError, IndexError):
                fields = line.split()
                if fields[3] not in (_ESTABLISHED, _CALLS):
                    continue
                repeats = fields[5][:2] == _REPEATS_TIMER
                most = _REPEATED if fields[3] == _ESTABLISHED else _REPEATED_CALL
                # Data that the host's own firewall drops does not count as sent. The kernel then sends probes, as it
                # does if the other end has no room; but that end answers, and the count of probes starts again.
                probed = fields[5][:2] in _PROBES_TIMERS and int(fields[8]) >= _PROBED
                unanswered = probed or (repeats and int(fields[6], 16) >= most)
                waiting = int(fields[4].partition(":")[0], 16) if repeats else 0
                sockets.append(Connection(_address(fields[1]), _address(fields[2]), fields[9], unanswered, waiting))
    return sockets


def of_ranks(
    ranks: Mapping[int, int], read: Callable[[list[str]], list[Connection]] = busy_connections
) -> dict[int, list[Connection]]:
    """The busy connections of each rank and its children. `ranks`: rank numbers by the leader of their session."""
    known = {connection.inode: connection for connection in read(_texts())}
    by_rank: dict[int, list[Connection]] = {}
    for session, inode in _sockets_of(ranks if known else ()):
        if inode in known:
            by_rank.setdefault(ranks[session], []).append(known[inode])
    return by_rank


def listening(session: int) -> list[tuple[str, int]]:
    """The addresses and ports on which the processes of a session listen."""
    rows = [line.split() for text in _texts() for line in text.splitlines()[1:]]
    known = {fields[9]: fields[1] for fields in rows if len(fields) > 9 and fields[3] == _LISTENS}
    own = {known[inode] for _, inode in _sockets_of([session]) if inode in known}
    return sorted((_address(text), int(text.rpartition(":")[2], 16)) for text in own)


def _sockets_of(sessions: Collection[int]) -> Iterator[tuple[int, str]]:
    """The sockets of the processes of these sessions, each with its session."""
    for session, pid in processes.of_sessions(sessions):
        for file in (processes.PROC / str(pid) / "fd").glob("*"):
            with suppress(OSError):
                target = os.readlink(file)
                if target.startswith("socket:["):
                    yield session, target[8:-1]


def is_reachable(address: str) -> bool:
    """Whether the machine at an address answers a call, even by refusing it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as call:
        call.settimeout(_CALL_SECONDS)
        try:
            call.connect((address, random.choice(_PORTS)))
        except OSError as fault:
            return isinstance(fault, ConnectionRefusedError)
        return True


class Calls:
    """Calls all other machines of a node's ranks at the same time, once each time that a link fails."""

    def __init__(self, call: Callable[[str], bool] = is_reachable) -> None:
        self._call = call
        self._ends: set[tuple[str, str]] | None = None
        self._answers: dict[str, bool] = {}

    def look(self, fails: bool, ends: Callable[[], set[tuple[str, str]]]) -> dict[str, list[list[str]]]:
        """The `silent` and the `answering` machines, as ends of connections; empty while no link `fails`."""
        if not fails:
            self._ends, self._answers = None, {}
            return {}
        if self._ends is None:
            self._ends = ends()
            heard = self._answers
            for peer in {peer for own, peer in self._ends if own != peer}:
                threading.Thread(target=self._ask, args=(peer, heard), name=CALL, daemon=True).start()
        known = dict(self._answers)
        both = {"silent": False, "answering": True}
        return {
            name: sorted([own, peer] for own, peer in self._ends if known.get(peer) is wanted)
            for name, wanted in both.items()
        }

    def _ask(self, peer: str, heard: dict[str, bool]) -> None:
        with suppress(OSError):
            heard[peer] = self._call(peer)


class Links:
    """Checks the connections of a node's ranks every 2 s, and reports what has changed."""

    def __init__(self) -> None:
        self._next, self._calls = 0.0, Calls()
        self._looks: deque[dict[int, list[Connection]]] = deque(maxlen=_LOOKS)
        self._reported: dict[int, dict[str, Any]] = {}

    def look(self, lives: Sequence[Life], torchrun: int) -> list[tuple[int, dict[str, Any]]]:
        """By rank, if they have changed: its `unanswered` and its `crowded` connections, as addresses.

        The connections of the process `torchrun`, which calls the first node every 5 s, count for the node's first
        rank. So do the machines that are `silent` and `answering` while a link fails.
        """
        if (now := time.monotonic()) < self._next:
            return []
        self._next = now + _EVERY_SECONDS
        ranks = {life.pid: life.rank for life in lives if life.code is None}
        leaders = {**ranks, torchrun: min(ranks.values())} if ranks else {}
        self._looks.append(of_ranks(leaders))
        fails = any(connection.unanswered for of in self._looks[-1].values() for connection in of)
        called = self._calls.look(fails, lambda: self._ends(ranks))
        news = []
        for rank in ranks.values():
            about = {"unanswered": self._unanswered(rank), "crowded": self._crowded(rank)}
            if called and rank == min(ranks.values()):
                about |= called
            if about != self._reported.get(rank, {"unanswered": [], "crowded": []}):
                self._reported[rank] = about
                news.append((rank, about))
        return news

    def _ends(self, ranks: Mapping[int, int]) -> set[tuple[str, str]]:
        """The ends of the ranks' connections, except global addresses: Muster must not call other people's servers."""
        of_all = (of for known in of_ranks(ranks, connections).values() for of in known)
        ends = {(of.own, of.peer) for of in of_all if not ipaddress.ip_address(of.peer).is_global}
        return set(sorted(ends)[:_MOST])

    def _unanswered(self, rank: int) -> list[list[str]]:
        """The ends of connections that were unanswered in the last two looks."""
        ends = [{(c.own, c.peer) for c in look.get(rank, ()) if c.unanswered} for look in list(self._looks)[-2:]]
        return sorted(map(list, ends[0] & ends[-1])) if len(ends) > 1 else []

    def _crowded(self, rank: int) -> list[list[str]]:
        """The ends of connections that had much to send in nearly all of the last looks."""
        ends = [{(c.own, c.peer) for c in look.get(rank, ()) if not c.unanswered} for look in self._looks]
        return sorted(list(pair) for pair in set().union(*ends) if sum(pair in of for of in ends) >= _CROWDED_LOOKS)


def _texts() -> list[str]:
    texts = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            texts.append((processes.PROC / "net" / name).read_text())
    return texts


def _address(text: str) -> str:
    """`0100007F:1F90` as `127.0.0.1`. The kernel writes each four bytes as a number in this machine's byte order."""
    words = text.partition(":")[0]
    data = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    address = socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)
    return address.removeprefix("::ffff:")
