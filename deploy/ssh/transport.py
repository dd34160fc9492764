"""paramiko's transport with Muster's limits: the algorithms that the settings allow, and bounded memory per host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from paramiko import Channel, Message, Transport
from paramiko.common import (
    MSG_CHANNEL_EOF,
    MSG_CHANNEL_FAILURE,
    MSG_CHANNEL_REQUEST,
    MSG_CHANNEL_WINDOW_ADJUST,
)
from paramiko.ssh_exception import SSHException

from .way import Algorithms

# What may come before we say that we read it. paramiko's 2 MB would make a host 30 ms away send 60 MB/s at most.
_WINDOW = 16 * 2**20
# paramiko believes a packet's length, up to 4 GB; OpenSSH sends 256 KB at most.
_MOST_PACKET = 1 << 20
# paramiko asks for 16 bytes and then for the rest of a packet: two calls of the kernel for each of the many small ones
# with which a host confirms what it gets.
_AT_ONCE = 64 << 10
ENDLESS = "does not end"
# What RFC 4254 lets one side say on an open channel; not CLOSE, which answers the other side's.
_OF_CHANNEL = frozenset(
    {*range(MSG_CHANNEL_WINDOW_ADJUST, MSG_CHANNEL_EOF + 1), *range(MSG_CHANNEL_REQUEST, MSG_CHANNEL_FAILURE + 1)}
)


class WatchedSocket:
    """A socket that knows when it last received a byte: `at`, on the monotonic clock.

    It ends a connection that would fill our memory through paramiko: one with more bytes than a packet can have
    (`packet` is called for each packet), with more in `channels` than we allowed, or with a login that lasts beyond
    `login_by`.
    """

    def __init__(self, sock: Any, login_by: float | None = None) -> None:
        self._sock, self.at = sock, time.monotonic()
        self.channels: set[Channel] = set()
        self.login_by = login_by
        # Seconds to wait before each read, so that what the host says gathers: while much is sent, a host confirms
        # every three packets, and to wake a thread for each of them costs more than to read them.
        self.gather_s = 0.0
        self._come = memoryview(b"")
        self._in_packet = self._unlooked = 0

    def recv(self, size: int) -> bytes:
        """Like socket.recv. Raises SSHException if the other side breaks the rules."""
        if not self._come:
            if self.gather_s:
                time.sleep(self.gather_s)
            self._come = memoryview(self._sock.recv(_AT_ONCE))
            self.at = time.monotonic()
            self._unlooked += len(self._come)
        data, self._come = bytes(self._come[:size]), self._come[size:]
        self._in_packet += len(data)
        if self._in_packet > _MOST_PACKET:
            raise SSHException(f"a packet {ENDLESS}")
        if self.login_by and self.at > self.login_by:
            raise SSHException(f"its greeting {ENDLESS}")
        if self._unlooked > _WINDOW:
            self._unlooked = 0
            if any(
                len(channel.in_buffer) + len(channel.in_stderr_buffer) > 2 * _WINDOW for channel in list(self.channels)
            ):
                raise SSHException("it sends more than it may")
        return data

    def packet(self) -> None:
        """A new packet begins."""
        self._in_packet = 0

    def close(self) -> None:
        """Close the socket; a channel of a jump host may find that host's connection closed already."""
        with suppress(OSError, EOFError):
            self._sock.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class SettledTransport(Transport):  # type: ignore[misc]
    """Agrees on what the settings allow; asks first for host keys of `types`. `login_s`: seconds to be let in."""

    def __init__(self, sock: Any, algorithms: Algorithms, types: Sequence[str], login_s: float) -> None:
        watched = WatchedSocket(sock, time.monotonic() + login_s)
        super().__init__(watched, default_window_size=_WINDOW)
        self._preferred_ciphers, self._preferred_macs = algorithms.ciphers, algorithms.macs
        self._preferred_kex, self._preferred_keys = algorithms.kex, _order(algorithms, types)
        read_message = self.packetizer.read_message

        def read_one() -> Any:
            watched.packet()
            return read_message()

        self.packetizer.read_message = read_one

    def _send_message(self, data: Message) -> None:
        """Send a message, unless it is about a channel that is over: OpenSSH ends the whole connection for that.

        paramiko lets go of a channel before it sends what it had to say there. Meanwhile the host may have closed the
        channel, and this transport's thread have answered. paramiko sends one message at a time, so none comes between.
        """
        with data.packet.getbuffer() as packet:
            kind, channel = packet[0], int.from_bytes(packet[1:5], "big")
        if kind not in _OF_CHANNEL or any(
            own.remote_chanid == channel and own.active and not own.closed for own in self._channels.values()
        ):
            super()._send_message(data)

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """Plain keys: paramiko would take a host's certificate without asking who signed it."""
        return self._preferred_keys


def _order(algorithms: Algorithms, types: Sequence[str]) -> tuple[str, ...]:
    """Host key types to ask for: the known ones first, where the settings leave the order to us."""
    names = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
    first = [name for kind in types for name in names.get(kind, (kind,)) if name in algorithms.host_keys]
    return tuple(dict.fromkeys([*first, *algorithms.host_keys] if algorithms.known_first else algorithms.host_keys))
