"""A connection between two nodes of a run that have proved to each other that they have the run's key (proof.py).

After the proof, it is neither encrypted nor signed, just like the traffic of gloo and NCCL. Standard library only.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import Any

from . import proof

_PROOF_SECONDS, _SILENCE_SECONDS = 10.0, 30.0
# The kernel probes a silent machine after 5 s, and gives up after 30.
_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_USER_TIMEOUT": 30_000}
_MOST_MESSAGE = 256 << 20
_LENGTH_BYTES = 4
_ENDS = ("opens", "answers")


class LinkLost(Exception):
    """A node went away, was silent for too long, or does not belong to this run."""


class Link:
    """Sends and receives messages (JSON objects) and bytes. A `with` block closes it; every error is LinkLost."""

    def __init__(self, connection: socket.socket, key: str, opens: bool) -> None:
        self._connection = connection
        try:
            connection.settimeout(_PROOF_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _ALIVE.items():
                with suppress(AttributeError):  # not on this system
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            self._prove(key, opens)
        except OSError as fault:
            connection.close()
            raise LinkLost(f"the connection to a node ended: {fault}") from fault
        except BaseException:
            connection.close()
            raise
        self.patience(_SILENCE_SECONDS)

    @staticmethod
    def to(where: str, key: str) -> Link:
        """Open a link to the node that listens at `where`: an address and a port, with a space between."""
        address, _, port = where.partition(" ")
        try:
            connection = socket.create_connection((address, int(port)), _PROOF_SECONDS)
        except OSError as fault:
            raise LinkLost(f"cannot reach {address}: {fault}") from fault
        return Link(connection, key, opens=True)

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def end(self) -> None:
        """End every wait for the other node, which then raises LinkLost. Any thread may call this."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def patience(self, seconds: float | None) -> None:
        """Set how many seconds to wait for the other node's bytes; None: for as long as its machine answers."""
        self._connection.settimeout(seconds)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        data = json.dumps(message).encode()
        self.write(len(data).to_bytes(_LENGTH_BYTES) + data)

    def receive(self) -> dict[str, Any]:
        """The other node's next message."""
        length = int.from_bytes(self._exactly(_LENGTH_BYTES))
        if length > _MOST_MESSAGE:
            raise LinkLost(f"a message of {length} bytes")
        try:
            message = json.loads(self._exactly(length))
        except (ValueError, RecursionError) as fault:
            raise LinkLost("a message that is not JSON") from fault
        if not isinstance(message, dict):
            raise LinkLost("a message that is not an object")
        return message

    def write(self, data: bytes) -> int:
        """Send bytes; like a file's `write`."""
        try:
            self._connection.sendall(data)
        except OSError as fault:
            raise LinkLost(f"the connection to a node ended: {fault}") from fault
        return len(data)

    def read(self, most: int) -> bytes:
        """The next bytes, like a file's `read`: fewer than `most` only at the end."""
        data = bytearray()
        try:
            while len(data) < most and (piece := self._connection.recv(min(most - len(data), 1 << 20))):
                data += piece
        except OSError as fault:
            raise LinkLost(f"the connection to a node ended: {fault}") from fault
        return bytes(data)

    def _exactly(self, count: int) -> bytes:
        data = self.read(count)
        if len(data) < count:
            raise LinkLost("the connection to a node ended")
        return data

    def _prove(self, key: str, opens: bool) -> None:
        """Exchange proofs: each end shows that it knows the key."""
        own, other = _ENDS if opens else reversed(_ENDS)
        drawn = proof.random_word()
        self.write(drawn.encode())
        theirs = self._exactly(proof.WORD).decode("latin-1")
        listeners, openers = (theirs, drawn) if opens else (drawn, theirs)
        self.write(proof.make_proof(key, own, listeners, openers).encode())
        if not proof.is_valid(self._exactly(proof.LENGTH).decode("latin-1"), key, other, listeners, openers):
            raise LinkLost("it does not know the key")
