"""Open one connection, strictly: known host keys only, our keys only, every failure named by its kind.

A room of the door to SSH (session.py).
"""

from __future__ import annotations

import errno
import logging
import random
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fabric import Connection
from paramiko import PKey, SSHClient, Transport
from paramiko.auth_strategy import AuthFailure
from paramiko.client import MissingHostKeyPolicy
from paramiko.ssh_exception import BadAuthenticationType, ChannelException, NoValidConnectionsError, SSHException

from deploy import known_hosts, session_settings
from deploy.inventory import Host
from deploy.known_hosts import Known
from deploy.ssh_faults import Kind, SshFault, Where, fault

# A server with MaxStartups 2 lets 32 hosts behind one jump host in within about this many tries.
TRIES = 10
_LONGEST_PAUSE_S = 2.0
# What may come before we say that we read it. paramiko's 2 MB would make a host 30 ms away send 60 MB/s at most.
_WINDOW = 16 * 2**20
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")

# paramiko prints to standard error what it also raises, unless somebody listens.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Opener:
    """Opens connections; hosts behind the same jump host share one connection to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hops: dict[tuple[str, ...], _Hop] = {}

    def open(self, host: Host, connection: Connection) -> None:
        """Open the connection and the jump hosts before it. Raises SshFault."""
        self.reach(host, connection)
        _open(session_settings.where(host, connection, jump=False), connection)

    def reach(self, host: Host, connection: Connection) -> None:
        """Open the jump hosts before the connection, not the connection itself. Raises SshFault."""
        *hops, last = session_settings.chain(connection)
        before: Connection | None = None
        way: tuple[str, ...] = ()
        for hop in hops:
            way = (*way, f"{hop.user}@{hop.host}:{hop.port}")
            hop.gateway = before or hop.gateway
            with self._lock:
                shared = self._hops.setdefault(way, _Hop(hop))
            shared.open(host)
            before = shared.connection
        last.gateway = before or last.gateway

    def close(self) -> None:
        """Close the connections to the jump hosts."""
        with self._lock:
            for hop in reversed(self._hops.values()):
                abandon(hop.connection)


class _Hop:
    """One jump host, opened by the first host that needs it; its fault is every later host's too."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()
        self._fault: SshFault | None = None

    def open(self, host: Host) -> None:
        with self._lock:
            where = session_settings.where(host, self.connection, jump=True)
            if self._fault:
                told = self._fault.message.partition(": ")[2]
                raise SshFault(self._fault.kind, f"{host.name}: {told}", self._fault.hint)
            if not self.connection.is_connected:
                try:
                    _open(where, self.connection)
                except SshFault as failed:
                    self._fault = failed
                    raise


class HeardSocket:
    """A socket that remembers when it last heard something: `at`, on the monotonic clock."""

    def __init__(self, sock: Any) -> None:
        self._sock, self.at = sock, time.monotonic()

    def recv(self, size: int) -> bytes:
        """As the socket's own."""
        data: bytes = self._sock.recv(size)
        self.at = time.monotonic()
        return data

    def close(self) -> None:
        """As the socket's own; a channel of a jump host may find that host's connection closed before it."""
        with suppress(OSError, EOFError):
            self._sock.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def abandon(connection: Connection) -> None:
    """Close at once, without a word to the other side: nothing of ours waits on it any longer."""
    transport = connection.client.get_transport()
    if transport:
        transport.active = False
        with suppress(OSError, AttributeError, EOFError):  # gone already; or a channel of a jump host that is
            transport.sock.shutdown(socket.SHUT_RDWR)
    connection.client.close()


class _KnownOnly(MissingHostKeyPolicy):  # type: ignore[misc]
    """Asked about every server's key (we tell paramiko none): takes what known_hosts has, refuses all else."""

    def __init__(self, where: Where, known: Sequence[Known]) -> None:
        self._where, self._known = where, known

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:
        """Return when the key is known. Raises SshFault: unknown-key, changed-key, revoked-key."""
        shown = f"{key.fingerprint} ({key.get_name()})"
        same = [entry for entry in self._known if entry.key == key.asbytes()]
        revoked = [entry for entry in same if entry.revoked]
        others = [entry for entry in self._known if not entry.revoked]
        if revoked:
            raise fault("revoked-key", self._where, f"{shown}, at {revoked[0].place}")
        if same:
            return
        if others:
            known = ", ".join(f"{known_hosts.fingerprint(entry.key)} at {entry.place}" for entry in others)
            raise fault("changed-key", self._where, f"it shows {shown}, known is {known}")
        raise fault("unknown-key", self._where, shown)


def _open(where: Where, connection: Connection) -> None:
    known = session_settings.known_keys(connection)
    attempt(where, connection, _KnownOnly(where, known), known)


def attempt(where: Where, connection: Connection, policy: MissingHostKeyPolicy, known: Sequence[Known]) -> None:
    """Open a connection whose jump hosts are open; `policy` judges the host key. Again, if the server is just too busy.

    Raises SshFault, or what `policy` raises.
    """
    limit = float(connection.connect_timeout)
    connection.connect_kwargs = {
        "banner_timeout": limit,
        "auth_timeout": limit,
        "channel_timeout": limit,
        "transport_factory": partial(transport, known=known),
    }
    connection.client.set_missing_host_key_policy(policy)
    for number in range(1, TRIES + 1):
        began = time.monotonic()
        try:
            _hold_second_factor(where, connection, connection.open())
            return
        except BaseException as failed:
            abandon(connection)
            if not isinstance(failed, SSHException | OSError | EOFError | UnicodeError):
                raise
            kind, detail = _classify(failed, time.monotonic() - began >= 0.9 * limit)
            if kind != "dropped" or number == TRIES:
                details = {"timeout": f"{limit:.0f}", "silent": f"{limit:.0f}", "dropped": str(number)}
                raise fault(kind, where, details.get(kind, detail)) from failed
        # Not all at once again: the server takes a few at a time.
        time.sleep(random.uniform(0.2, 1) * min(_LONGEST_PAUSE_S, 0.2 * 2**number))


def transport(sock: Any, known: Sequence[Known], **options: Any) -> Transport:
    """A transport that hears a dead link, asks first for the host key types we know, and moves bulk fast."""
    if isinstance(sock, socket.socket):
        # SSH asks and answers in small packets; Nagle's algorithm would hold each second one back for 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made = Transport(HeardSocket(sock), default_window_size=_WINDOW, **options)
    choices = made.get_security_options()
    types = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
    first = [name for entry in known for name in types.get(entry.type, (entry.type,)) if name in choices.key_types]
    choices.key_types = [*dict.fromkeys(first), *(name for name in choices.key_types if name not in first)]
    choices.ciphers = [*_CIPHERS, *(name for name in choices.ciphers if name not in _CIPHERS)]
    return made


def _hold_second_factor(where: Where, connection: Connection, result: Any) -> None:
    """A server may take the key and still want more: paramiko counts that as logged in."""
    wanted = result[-1].result if result else []
    if wanted and not connection.client.get_transport().is_authenticated():
        raise fault("second-factor", where, " or ".join(wanted))


def _classify(failed: Exception, late: bool) -> tuple[Kind, str]:
    """The kind of a failed connect, and its detail; `late` when it took all the time there was."""
    if isinstance(failed, AuthFailure):
        return _auth_kind(failed)
    if isinstance(failed, socket.gaierror | UnicodeError):
        return "resolve", ""
    if isinstance(failed, NoValidConnectionsError):
        codes = {error.errno for error in failed.errors.values()}
        return ("refused" if errno.ECONNREFUSED in codes else "unreachable"), ""
    if isinstance(failed, ChannelException):
        return ("forbidden", failed.text) if failed.code == 1 else ("refused", ", says the jump host before it")
    if isinstance(failed, OSError) and failed.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL):
        return "unreachable", ""
    if "opening channel" in str(failed) or (isinstance(failed, TimeoutError) and late):
        return "timeout", ""
    if "banner" in str(failed) or isinstance(failed, EOFError | ConnectionError) or "Negotiation failed" in str(failed):
        return ("silent" if late else "dropped"), ""
    return ("silent", "") if late else ("protocol", str(failed).strip() or type(failed).__name__)


def _auth_kind(failed: AuthFailure) -> tuple[Kind, str]:
    keys = failed.result.strategy
    refusals = [entry.result for entry in failed.result]
    allowed = next(
        (error.allowed_types for error in refusals if isinstance(error, BadAuthenticationType)), ["publickey"]
    )
    if "publickey" not in allowed:
        return "password-only", " and ".join(allowed)
    offered = f"offered {', '.join(keys.offered)}" if keys.offered else "there is none to offer"
    if any("shut down" in str(error) for error in refusals):
        offered += "; it hung up after some (MaxAuthTries): name the one key with IdentityFile and IdentitiesOnly yes"
    return "key-rejected", "; ".join([offered, *keys.left_out])
