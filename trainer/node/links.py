"""Connections of a node's ranks whose other end does not answer, from /proc/net. Standard library only.

TCP sends again what nobody acknowledges, and the kernel counts how often (tcp_retries2 in ip-sysctl.txt). A host
acknowledges also for processes that stand still, so a count that grows shows a link or a host that fails.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .ends import Life

# The fourth repetition leaves 3 s after the first byte that nobody acknowledged, where the round trip is short.
_REPEATED, _REPEATED_CALL = 4, 3
_ESTABLISHED, _CALLS = "01", "02"
_REPEATS_TIMER = "01"
_BACKLOG_BYTES = 32 << 10
_MOST = 64
# Looks, 2 s apart: in how many of the last a connection must be unanswered, or crowded, before it is told of.
_EVERY_SECONDS, _LOOKS, _CROWDED_LOOKS = 2.0, 6, 5


@dataclass(frozen=True)
class Connection:
    """A connection that carries something: `unanswered` if the other end has not acknowledged it for seconds."""

    own: str
    peer: str
    inode: str
    unanswered: bool
    waiting_bytes: int


def busy(texts: Iterable[str]) -> list[Connection]:
    """The connections that are unanswered, or have much to send, in texts of /proc/net/tcp and tcp6."""
    found = []
    for text in texts:
        for line in text.splitlines()[1:]:
            with suppress(ValueError, IndexError):
                fields = line.split()
                if fields[3] not in (_ESTABLISHED, _CALLS) or fields[5][:2] != _REPEATS_TIMER:
                    continue
                most = _REPEATED if fields[3] == _ESTABLISHED else _REPEATED_CALL
                unanswered, waiting = int(fields[6], 16) >= most, int(fields[4].partition(":")[0], 16)
                if unanswered or waiting >= _BACKLOG_BYTES:
                    found.append(Connection(_address(fields[1]), _address(fields[2]), fields[9], unanswered, waiting))
    return found[:_MOST]


def of_ranks(ranks: Mapping[int, int], root: Path = Path("/proc")) -> dict[int, list[Connection]]:
    """The busy connections of each rank and its children. `ranks`: by the process that leads their session."""
    connections = {connection.inode: connection for connection in busy(_texts(root))}
    by_rank: dict[int, list[Connection]] = {}
    for process in root.glob("[0-9]*") if connections and ranks else ():
        with suppress(OSError, ValueError, IndexError):
            session = int((process / "stat").read_text().rpartition(")")[2].split()[3])
            if session in ranks:
                own = [connections[inode] for inode in _sockets(process) if inode in connections]
                by_rank.setdefault(ranks[session], []).extend(own)
    return by_rank


class Links:
    """Looks at the connections of a node's ranks, every 2 s, and says what has changed."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root, self._next = root, 0.0
        self._looks: deque[dict[int, list[Connection]]] = deque(maxlen=_LOOKS)
        self._reported: dict[int, dict[str, Any]] = {}

    def look(self, lives: Sequence[Life], torchrun: int) -> list[tuple[int, dict[str, Any]]]:
        """By rank, where that has changed: its `unanswered` connections and those that are `crowded`, as addresses.

        Those of the process `torchrun`, which calls the first node every 5 s, count for the node's first rank.
        """
        if (now := time.monotonic()) < self._next:
            return []
        self._next = now + _EVERY_SECONDS
        ranks = {life.pid: life.rank for life in lives if life.code is None}
        leaders = {**ranks, torchrun: min(ranks.values())} if ranks else {}
        self._looks.append(of_ranks(leaders, self._root))
        news = []
        for rank in ranks.values():
            about = {"unanswered": self._unanswered(rank), "crowded": self._crowded(rank)}
            if about != self._reported.get(rank, {"unanswered": [], "crowded": []}):
                self._reported[rank] = about
                news.append((rank, about))
        return news

    def _unanswered(self, rank: int) -> list[list[str]]:
        """The ends of connections that two looks in a row met unanswered."""
        ends = [{(c.own, c.peer) for c in look.get(rank, ()) if c.unanswered} for look in list(self._looks)[-2:]]
        return sorted(map(list, ends[0] & ends[-1])) if len(ends) > 1 else []

    def _crowded(self, rank: int) -> list[list[str]]:
        """The ends of connections that had much to send in nearly all of the last looks."""
        ends = [{(c.own, c.peer) for c in look.get(rank, ()) if not c.unanswered} for look in self._looks]
        return sorted(list(pair) for pair in set().union(*ends) if sum(pair in of for of in ends) >= _CROWDED_LOOKS)


def _texts(root: Path) -> list[str]:
    texts = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            texts.append((root / "net" / name).read_text())
    return texts


def _sockets(process: Path) -> list[str]:
    inodes = []
    with suppress(OSError):
        for file in (process / "fd").iterdir():
            with suppress(OSError):
                target = os.readlink(file)
                if target.startswith("socket:["):
                    inodes.append(target[8:-1])
    return inodes


def _address(text: str) -> str:
    """`0100007F:1F90` as `127.0.0.1`. The kernel writes each four bytes as a number of this machine."""
    words = text.partition(":")[0]
    data = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    address = socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)
    return address.removeprefix("::ffff:")
