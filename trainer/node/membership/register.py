"""The register of a run's epochs, kept by a majority of its nodes: Raft, by pysyncobj, restricted to plain values.

pysyncobj reads pickles from anyone who connects, unless it has a password and the package `cryptography`. Here, each
message has a proof of the run's key, which is checked before the message is read, and a pickle may have only plain
values. A node keeps its votes in a journal, so that a node that comes back does not vote twice.
"""

from __future__ import annotations

import hmac
import io
import logging
import os
import pickle
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# pysyncobj 0.3.17 replaces this function by one for Windows, on every system; it is put back below.
_INET_NTOP = socket.inet_ntop

from pysyncobj import SyncObj, SyncObjConf, SyncObjException, replicated  # noqa: E402
from pysyncobj import journal as their_journal  # noqa: E402
from pysyncobj import pickle as their_pickle  # noqa: E402
from pysyncobj.tcp_connection import TcpConnection  # noqa: E402
from pysyncobj.transport import TCPTransport  # noqa: E402

socket.inet_ntop = _INET_NTOP

from muster.errors import TrainError  # noqa: E402

from .members import Epoch  # noqa: E402

_TICK_S = 0.05
# How many connections may exist whose node is not known yet, and how many bytes one may send without a whole message.
_MOST_NEW, _MOST_BYTES = 64, 1 << 20
_NEVER = 1 << 40  # a run has few epochs, so the log is never compacted
_JOURNAL_BYTES = 1 << 18  # room for more than a thousand epochs
_LEADER = 2  # a state of pysyncobj, which has no public name for it
_PROOF_BYTES, _TIME = 32, struct.Struct("!Q")
_ELECTION_S, _ALIVE_S, _AGAIN_S, _NO_MAJORITY_S = (0.5, 1.0), 3.5, 0.5, 2.0


class _Plain(pickle.Unpickler):
    """Reads plain values only. `_codecs.encode` is allowed, since older pickle protocols write bytes with it."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) != ("_codecs", "encode"):
            raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")
        return super().find_class(module, name)


def _loads(data: bytes) -> Any:
    return _Plain(io.BytesIO(data)).load()


class _Proof:
    """Signs messages in place of pysyncobj's encryption, and with its interface.

    As with encryption, pysyncobj gives each message a time and a key of its connection, against replays.
    """

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def encrypt_at_time(self, data: bytes, second: int) -> bytes:
        """The message with its proof."""
        rest = _TIME.pack(second) + data
        return hmac.digest(self._key, rest, "sha256") + rest

    def extract_timestamp(self, data: bytes) -> int:
        """When the message was sent. Raises ValueError if it lacks the right proof."""
        if not hmac.compare_digest(data[:_PROOF_BYTES], hmac.digest(self._key, data[_PROOF_BYTES:], "sha256")):
            raise ValueError("no proof of the run's key")
        return int(_TIME.unpack_from(data, _PROOF_BYTES)[0])

    def decrypt(self, data: bytes) -> bytes:
        """The message without proof and time. Raises ValueError if it lacks the right proof."""
        self.extract_timestamp(data)
        return data[_PROOF_BYTES + _TIME.size :]


class _Transport(TCPTransport):  # type: ignore[misc]
    """Ends connections that do not identify their node, before they use up all file descriptors."""

    def _onTick(self) -> None:
        super()._onTick()
        for connection in list(self._unknownConnections)[:-_MOST_NEW]:
            connection.disconnect()


def _bound_memory() -> None:
    """End a connection that sends more than any message of Muster has; until then, its proof cannot be checked."""
    read = TcpConnection._TcpConnection__processRead

    def bounded(self: Any) -> Any:
        if len(self._TcpConnection__readBuffer) > _MOST_BYTES:
            self.disconnect()
            return False
        return read(self)

    TcpConnection._TcpConnection__processRead = bounded


_bound_memory()


def _bear_a_full_disk() -> None:
    """If the disk is full, save the index of committed entries later, since the other nodes know it too.

    A vote is different: if the disk cannot keep it, the node does not vote (`Register._tick`).
    """
    save = their_journal.FileJournal.onOneSecondTimer

    def saved(self: Any) -> None:
        with suppress(OSError):
            save(self)

    their_journal.FileJournal.onOneSecondTimer = saved
    their_journal.ResizableFile.__init__.__defaults__ = (_JOURNAL_BYTES, 2.0, None)


_bear_a_full_disk()


class _Replica(SyncObj):  # type: ignore[misc]
    """The values that all nodes keep. A change counts only for the epoch that it names: a late one has no effect."""

    def __init__(self, own: str, others: list[str], key: str, journal: Path) -> None:
        self._proof = _Proof(key)
        shortest, longest = _ELECTION_S
        conf = SyncObjConf(
            autoTick=False,
            journalFile=str(journal),
            bindAddress=own,
            maxBindRetries=3,
            raftMinTimeout=shortest,
            raftMaxTimeout=longest,
            connectionTimeout=_ALIVE_S,
            connectionRetryTime=_AGAIN_S,
            leaderFallbackTimeout=_NO_MAJORITY_S,
            commandsWaitLeader=False,
            logCompactionMinEntries=_NEVER,
            logCompactionMinTime=_NEVER,
        )
        super().__init__(own, others, conf, transportClass=_Transport)
        if hasattr(os, "posix_fallocate"):  # the journal is a mapped file: SIGBUS if the disk had no room for a page
            with journal.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, _JOURNAL_BYTES)
        self.epoch: tuple[int, list[str], list[str]] = (0, [], [])
        self.over: int | None = None
        self.repeats = 0

    @property
    def encryptor(self) -> _Proof:
        """The signer, in the attribute in which pysyncobj has its encryption."""
        return self._proof

    @replicated  # type: ignore[untyped-decorator]
    def form(self, number: int, members: list[str]) -> None:
        """Begin the next epoch, `number`."""
        if number == self.epoch[0] + 1 and self.over is None:
            self.repeats += members == self.epoch[1]
            self.epoch = (number, members, self.epoch[1])

    @replicated  # type: ignore[untyped-decorator]
    def end(self, number: int, code: int) -> None:
        """Note that the run is over: the ranks of this epoch have ended it with `code`."""
        if number == self.epoch[0] and self.over is None:
            self.over = code


class Register:
    """This node's part of the register. `where`: the address and port of each node, by its name."""

    def __init__(self, own: str, where: Mapping[str, str], key: str, journal: Path) -> None:
        their_pickle.loads = their_journal.loads = _loads
        logging.getLogger("pysyncobj").setLevel(logging.CRITICAL)
        others = [address for name, address in where.items() if name != own]
        try:
            self._replica = _Replica(where[own], others, key, journal)
        except SyncObjException as fault:
            raise TrainError(f"cannot listen on {where[own]} for the other nodes' register", "") from fault
        except Exception as fault:  # the disk is full, or the journal is damaged
            hint = "free some disk space there; if the disk is damaged, the other nodes continue without this host"
            raise TrainError(f"{journal}: the nodes' register cannot be kept there: {fault}", hint) from fault
        self._closed = threading.Event()
        threading.Thread(target=self._tick, daemon=True, name="muster-register").start()

    def _tick(self) -> None:
        while not self._closed.is_set():
            try:
                self._replica.doTick(_TICK_S)
            except OSError:  # the disk is full, so this node has not voted
                time.sleep(_TICK_S)

    @property
    def epoch(self) -> Epoch:
        """The newest epoch that a majority keeps, as far as this node knows."""
        number, members, before = self._replica.epoch
        return Epoch(number, tuple(members), tuple(before), self._replica.over, self._replica.repeats)

    @property
    def is_current(self) -> bool:
        """Whether this node knows everything that a majority had agreed on when this node started."""
        return bool(self._replica.isReady())

    @property
    def is_leader(self) -> bool:
        """Whether this node believes that it is the leader."""
        return bool(self._replica.getStatus()["state"] == _LEADER)

    def form(self, number: int, members: tuple[str, ...]) -> None:
        """Propose an epoch."""
        self._replica.form(number, list(members), callback=_nothing)

    def end(self, number: int, code: int) -> None:
        """Propose the run's end."""
        self._replica.end(number, code, callback=_nothing)

    def close(self) -> None:
        """Stop taking part."""
        self._closed.set()


_nothing: Callable[..., None] = lambda *_: None  # noqa: E731
