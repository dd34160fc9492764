"""Open one connection, strictly: known host keys only, the user's keys only; each failure has its kind."""

from __future__ import annotations

import errno
import logging
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from paramiko import PKey, Transport
from paramiko.auth_strategy import AuthFailure
from paramiko.common import OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
from paramiko.ssh_exception import BadAuthenticationType, ChannelException, SSHException

from ..config.inventory import Host
from ..core.errors import UsageError
from ..door import master as door
from ..door.faults import Kind, SshFault, Where, fault
from . import host_keys, master, sockets, user_file
from .keys import Keys
from .transport import ENDLESS, SettledTransport
from .way import Client, Way

_LONGEST_PAUSE_S = 2.0
# What only a person, a token or Kerberos can do, and so the user's own ssh.
_FOR_A_PERSON = ("second-factor", "password-only", "key-rejected")
# How often the connect timeout a whole login may take.
_LOGIN = 3
# So many keys may be more than a server lets a client try.
_MANY_KEYS = 3
# Judges a server's key; the second is the server's address, where we are connected to it straight. Raises.
Judge = Callable[[PKey, str | None], None]

# paramiko prints to standard error what it also raises, unless somebody listens.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Link:
    """One connection: open while `transport` is there and active. `before`: the jump host's, which is open."""

    def __init__(self, way: Way, before: Link | None = None) -> None:
        self.way, self.before = way, before
        self.transport: Any = None
        self.proxy: subprocess.Popen[bytes] | None = None

    def abandon(self) -> None:
        """Close at once without telling the other side: no caller waits for it any more."""
        transport, proxy = self.transport, self.proxy
        if transport:
            transport.active = False
            with suppress(OSError, AttributeError, EOFError):  # gone already; or a channel of a jump host that is
                transport.sock.shutdown(socket.SHUT_RDWR)
            transport.close()
            with suppress(OSError, EOFError):
                transport.sock.close()
        if proxy:
            self.proxy = None
            sockets.end_proxy(proxy)


class Opener:
    """Opens connections; hosts behind the same jump host share one connection to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hops: dict[Way, _Hop] = {}

    def open(self, host: Host, link: Link) -> None:
        """Open a link and the jump hosts before it. Raises SshFault, UsageError for settings that only ssh honours."""

        def connect() -> None:
            self.reach(host, link)
            open_link(host, link, jump=False)

        _open_or_join(link, connect)

    def reach(self, host: Host, link: Link) -> None:
        """Open the jump hosts before the link, not the link itself. Raises SshFault."""
        before: Link | None = None
        for way in link.way.hops:
            with self._lock:
                shared = self._hops.setdefault(way, _Hop(Link(way, before)))
            shared.open(host)
            before = shared.link
        link.before = before

    def close(self) -> None:
        """Close the connections to the jump hosts."""
        with self._lock:
            for hop in reversed(self._hops.values()):
                hop.link.abandon()


class _Hop:
    """One jump host, opened by the first host that needs it; its fault is every later host's too."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._lock = threading.Lock()
        self._fault: SshFault | None = None

    def open(self, host: Host) -> None:
        with self._lock:
            if self._fault:
                fault_text = self._fault.message.partition(": ")[2]
                raise SshFault(self._fault.kind, f"{host.name}: {fault_text}", self._fault.hint)
            if not (self.link.transport and self.link.transport.active):
                try:
                    _open_or_join(self.link, lambda: open_link(host, self.link, jump=True))
                except SshFault as failed:
                    self._fault = failed
                    raise


def _open_or_join(link: Link, connect: Callable[[], None]) -> None:
    """Join the connection of `fab login`; else open one; else, where only a person can log in, join the user's own."""
    client = link.way.client
    if client and _join(link, client, client.own):
        return
    try:
        if link.way.refusal:
            raise link.way.refusal
        connect()
    except (SshFault, UsageError) as failed:
        for_person = isinstance(failed, UsageError) or failed.kind in _FOR_A_PERSON
        if not (for_person and client and client.users and _join(link, client, client.users)):
            raise


def _join(link: Link, client: Client, path: str) -> bool:
    joined = os.path.exists(path) and master.alive(client.line[0], path)
    if joined:
        link.transport = master.Master(client.line[0], path)
    return joined


def open_link(host: Host, link: Link, jump: bool) -> None:
    """Open a link whose jump hosts are open, to a server we know. Raises SshFault."""
    way, where = link.way, link.way.where(host, jump)
    attempt(where, link, lambda key, peer: host_keys.check(where, way, key, peer), host_keys.types(way.trust))


def attempt(where: Where, link: Link, judge: Judge, types: Sequence[str]) -> None:
    """Open a link whose jump hosts are open. Tries again if the server is only too busy.

    types: of host keys, in the order of the request. Raises SshFault, or what `judge` raises.
    """
    limit = link.way.timeout_s
    for number in range(1, door.TRIES + 1):
        began = time.monotonic()
        try:
            result = _once(link, judge, types)
            _hold_second_factor(where, link.transport, result)
            link.transport.sock.login_by = None
            return
        except BaseException as failed:
            link.abandon()
            if not isinstance(failed, SSHException | OSError | EOFError | UnicodeError):
                raise
            kind, detail = _classify(failed, time.monotonic() - began >= 0.9 * limit)
            if kind != "dropped" or number == door.TRIES:
                details = {"timeout": f"{limit:.0f}", "silent": f"{limit:.0f}", "dropped": str(number)}
                if kind == "resolve" and (name := user_file.meant(where.host)):
                    detail = f"; did you mean {name}?"
                raise fault(kind, where, details.get(kind, detail)) from failed
        # At a random time, because the server accepts only a few logins at once.
        time.sleep(random.uniform(0.2, 1) * min(_LONGEST_PAUSE_S, 0.2 * 2**number))


def _once(link: Link, judge: Judge, types: Sequence[str]) -> Any:
    """One try: reach it, judge its key, log in. Returns paramiko's account of the login."""
    way, peer = link.way, None
    if link.before:
        sock = link.before.transport.open_channel("direct-tcpip", (way.host, way.port), ("", 0))
    elif way.proxy:
        sock, link.proxy = sockets.start_proxy(way.proxy)
    else:
        sock = sockets.connect(way)
        peer = str(sock.getpeername()[0])
        # SSH asks and answers in small packets; Nagle's algorithm would hold each second one back for 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    transport = link.transport = SettledTransport(sock, way.algorithms, types, _LOGIN * way.timeout_s)
    transport.banner_timeout = transport.auth_timeout = transport.channel_timeout = way.timeout_s
    transport.start_client(timeout=way.timeout_s)
    judge(transport.get_remote_server_key(), peer)
    return Keys(way.user, way.login).authenticate(transport)


def _hold_second_factor(where: Where, transport: Transport, result: Any) -> None:
    """Refuse a login that is only partial: paramiko takes it for a login, but the server wants a second factor."""
    wanted = result[-1].result if result else []
    if wanted and not transport.is_authenticated():
        raise fault("second-factor", where, " or ".join(wanted))


def _classify(failed: Exception, late: bool) -> tuple[Kind, str]:
    """The kind of a failed connect, and its detail; `late`: it used up all its time."""
    if isinstance(failed, AuthFailure):
        return _auth_kind(failed)
    if isinstance(failed, socket.gaierror | UnicodeError):
        return "resolve", ""
    if isinstance(failed, ConnectionRefusedError):
        return "refused", ""
    if isinstance(failed, ChannelException):
        forbidden = failed.code == OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        return ("forbidden", failed.text) if forbidden else ("refused", ", says the jump host before it")
    if isinstance(failed, OSError) and failed.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL):
        return "unreachable", ""
    if ENDLESS in str(failed):
        return "protocol", str(failed)
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
        few = len(keys.offered) < _MANY_KEYS
        many = " (MaxAuthTries?): name the one key with IdentityFile and IdentitiesOnly yes"
        offered += "; then it hung up" + ("" if few else many)
    return "key-rejected", "; ".join([offered, *keys.left_out])
