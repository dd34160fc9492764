"""Connections that `ssh` holds open: who logs in, who ends them, and what they share.

A host has one, opened once for all commands; hosts behind one jump host share the connection to it. None outlives the
command: each ends by a message, by the guard (scripts/guard.sh) if this process is killed, and some seconds after its
last client if the guard is killed too. What `muster login` or the user has opened serves too, and stays.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import resource
import shlex
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress

from ..core.errors import DeployError
from ..core.scripts import Scripts
from ..core.text import in_seconds
from ..job.inventory import Host
from . import framing, mux, reasons, settings
from .faults import SshFault, Where, fault
from .settings import Client, Place, Route

# A server with MaxStartups 2 lets 32 hosts behind one jump host in within 10 tries. If strangers hold all its places,
# these tries last some 25 s.
TRIES = 16
_LONGEST_PAUSE_S = 2.0
# How often the connect timeout a whole login may take: ssh's own ends with the exchange of keys.
_LOGIN = 3
# How long a connection waits without a client. On a busy machine the first one may come seconds after the login.
_ALONE_S = 10
_FIRST_S, _HELLO_S, _LAST_WORDS_S = 30.0, 5.0, 0.5
# The files that a command has open: of itself, and of each host a connection and a few streams at a time.
_FILES, _FILES_OF_A_HOST = 256, 16
# What only a person, a token or Kerberos can do.
_FOR_A_PERSON = ("second-factor", "password-only", "key-rejected", "closed")
_MOST_WORDS = 64 << 10
_SCRIPT = Scripts(__file__)


class Words(threading.Thread):
    """What an ssh says on its standard error, as long as it lives: the beginning, and the end."""

    def __init__(self, pipe: int) -> None:
        super().__init__(daemon=True, name="muster-ssh-words")
        self._pipe, self._begin, self._end = pipe, bytearray(), bytearray()
        self.start()

    def run(self) -> None:
        """Read to the end. It is read even where nobody wants it, so that ssh never waits for us."""
        while piece := os.read(self._pipe, 1 << 16):
            room = _MOST_WORDS - len(self._begin)
            self._begin += piece[:room]
            self._end += piece[room:]
            if len(self._end) > 2 * _MOST_WORDS:
                del self._end[:-_MOST_WORDS]
        os.close(self._pipe)

    def text(self, wait_s: float = 0.0) -> str:
        """What it has said so far, or within that time to its end."""
        self.join(wait_s)
        return bytes(self._begin + self._end).decode(errors="replace")


class Master:
    """One connection: `path` of its socket. `words` of its ssh, if it is ours to end; the user's stays."""

    def __init__(self, path: str, words: Words | None = None) -> None:
        """Raises OSError, EOFError or mux.Refused if no master answers there."""
        self.path, self._words = path, words
        self._control = mux.Control(path, _FIRST_S if words else _HELLO_S)
        self._closed, self._forwards = False, list[tuple[str, str]]()
        try:
            self._process = self._control.process()
        except BaseException:
            self._control.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether it stands, as far as anybody knows."""
        return not self._closed and self._control.stands()

    @property
    def called_at(self) -> str:
        """The address at which this machine reaches the host; empty where another host or program calls it."""
        return reasons.called_at(self.last_words)

    @property
    def forbids(self) -> bool:
        """Whether the host has just said that it makes no connections for us."""
        return reasons.forbids(self.last_words)

    @property
    def last_words(self) -> str:
        """What its ssh said of late, where that is known."""
        return self._words.text() if self._words else ""

    def start(self, line: str) -> mux.Channel:
        """Begin a command. Raises mux.Refused, OSError, EOFError; TimeoutError if the host does not answer."""
        return mux.Channel(self.path, line, framing.BEGIN_S)

    def dial(self, port: int) -> mux.Tunnel:
        """A connection to a port of the host's loopback. Raises as `start` does."""
        return mux.Tunnel(self.path, "127.0.0.1", port, _FIRST_S)

    def forward(self, here: str, remote: str) -> None:
        """Let connections to a path here go to a socket of the host, until this ends. Raises as `start` does."""
        self._control.forward(here, remote)
        self._forwards.append((here, remote))

    def why_gone(self) -> str:
        """Why a command ended without its code."""
        end = time.monotonic() + _LAST_WORDS_S
        while self.is_open and time.monotonic() < end:
            time.sleep(0.01)
        if self.is_open:
            return "the host ended the command without an exit code, and the connection is still open"
        if self._closed:
            return "this side closed the connection"
        words = self._words.text(_LAST_WORDS_S) if self._words else ""
        if "not responding" in words:
            return f"no byte arrived for {in_seconds(framing.PULSES * framing.PULSE_S)}"
        return "the other side closed the connection"

    def end(self) -> None:
        """Let it close its connection, whoever has opened it."""
        try:
            control = mux.Control(self.path, _HELLO_S / 5)
            control.end()
            control.close()
        except EOFError:
            pass  # it is gone already
        except (OSError, mux.Refused):  # it does not answer, as a stopped process does not
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._process, signal.SIGKILL)
        self._control.close()

    def close(self) -> None:
        """Leave it, and end it if it is ours. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._words and self._control.stands():
            self.end()
        with suppress(OSError, EOFError, mux.Refused):
            for here, remote in () if self._words else self._forwards:  # the user's own connection goes on
                self._control.forward(here, remote, end=True)
        self._control.close()


class Opener:
    """Opens connections for one command, and closes them all at its end."""

    def __init__(self, client: Client) -> None:
        self.client, self._lock, self._over = client, threading.Lock(), False
        self._hops: dict[Place, _Hop] = {}
        self._masters, self._logins = list[Master](), set[int]()
        self._numbers = itertools.count()
        line = _SCRIPT("guard", str(client.folder), client.program)
        # A Ctrl-C here is ours to answer.
        self._guard = subprocess.Popen(line, stdin=subprocess.PIPE, start_new_session=True)

    def open(self, host: Host, route: Route, jump: bool = False) -> Master:
        """The connection that `muster login` has opened; else a new one; else the user's own, if only a person logs in.

        `jump`: the route is to a jump host on the way to `host`. Raises SshFault.
        """
        if joined := join(login_socket(route)):
            return self._hold(joined)
        try:
            return self._log_in(host, route, route.where(host, jump))
        except SshFault as failed:
            users = self.client.users_socket(route.place) if failed.kind in _FOR_A_PERSON else ""
            if users and (joined := join(users)):
                return self._hold(joined)
            raise

    def close(self) -> None:
        """End every connection that is ours, and every login that has not come to its end."""
        with self._lock:
            self._over = True
            logins, masters = set(self._logins), list(self._masters)
        for process in logins:
            settings.kill_group(process)
        for master in reversed(masters):
            master.close()
        self._guard.kill()
        self._guard.communicate()

    def _log_in(self, host: Host, route: Route, where: Where) -> Master:
        """Open a connection. Tries again if the server is only too busy."""
        before = self._reach(host, route.before) if route.before else None
        for number in _tries():
            try:
                return self._hold(self._try(route, where, before, number))
            except SshFault as failed:
                if failed.kind != "dropped" or number == TRIES:
                    raise
        raise AssertionError

    def _reach(self, host: Host, route: Route) -> Master:
        """The connection to a jump host, which the hosts behind it share. Its fault is each one's."""
        with self._lock:
            hop = self._hops.setdefault(route.place, _Hop())
        with hop.lock:
            if hop.fault:
                text = hop.fault.message.partition(": ")[2]
                raise SshFault(hop.fault.kind, f"{host.name}: {text}", hop.fault.hint)
            if not (hop.master and hop.master.is_open):
                try:
                    hop.master = self.open(host, route, jump=True)
                except SshFault as failed:
                    hop.fault = failed
                    raise
            return hop.master

    def knock(self, host: Host, route: Route, options: Mapping[str, str]) -> SshFault | None:
        """Try to log in with these options, to see a host's keys. Its fault, unless ssh came as far as a login."""
        before = self._reach(host, route.before) if route.before else None
        given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        for number in _tries():
            try:
                where = route.where(host)
                _, words = self._run(route, where, [*way_in(self.client, route, before), *given, "-v", "-T", "-n"])
                failed = self._fault(words, route, where, number, before)
            except SshFault as slow:
                failed = slow
            if failed.kind != "dropped":
                break
        return None if failed.kind in _FOR_A_PERSON else failed

    def _try(self, route: Route, where: Where, before: Master | None, number: int) -> Master:
        path = f"{self.client.folder}/{next(self._numbers)}"
        code, words = self._run(route, where, [*way_in(self.client, route, before), *own(path)])
        if code:
            raise self._fault(words, route, where, number, before)
        try:
            return Master(path, words)
        except (OSError, EOFError, mux.Refused) as gone:
            raise fault("lost", where, f" ({str(gone) or 'just after the login'})") from gone

    def _fault(self, words: Words, route: Route, where: Where, number: int, before: Master | None) -> SshFault:
        text = self.client.original(words.text(_LAST_WORDS_S))
        return reasons.fault_of(text, route, where, number, before.last_words if before else "")

    def _run(self, route: Route, where: Where, options: list[str]) -> tuple[int, Words]:
        """Run ssh until it ends, or goes into the background. Raises SshFault if that takes too long."""
        process, words = self._begin(self.client.line(route.place, *options))
        limit_s = _LOGIN * route.timeout_s
        clock = threading.Timer(limit_s, settings.kill_group, (process.pid,))
        clock.daemon = True
        clock.start()
        try:
            code = process.wait()
        finally:
            clock.cancel()
            with self._lock:
                self._logins.discard(process.pid)
        if code == -signal.SIGKILL:
            raise fault("protocol", where, f"the login did not end within {in_seconds(limit_s)}")
        return code, words

    def _begin(self, line: list[str]) -> tuple[subprocess.Popen[bytes], Words]:
        reading, writing = os.pipe()
        # What it says has to be OpenSSH's own words, and nobody is there to answer.
        environment = {**os.environ, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}
        nothing = subprocess.DEVNULL
        try:
            with self._lock:
                if self._over:
                    raise DeployError("this command is over")
                # In a session of its own: a Ctrl-C here is ours to answer, and no terminal is there to ask on.
                process = subprocess.Popen(
                    line, stdin=nothing, stdout=nothing, stderr=writing, env=environment, start_new_session=True
                )
                self._logins.add(process.pid)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return process, Words(reading)

    def _hold(self, master: Master) -> Master:
        with self._lock:
            over = self._over
            self._masters.append(master)
        if over:
            master.close()
        return master


def _tries() -> Iterator[int]:
    """The numbers of the tries to log in, with a pause behind each."""
    for number in range(1, TRIES + 1):
        yield number
        # At a random time, because the server accepts only a few logins at once.
        time.sleep(random.uniform(0.2, 1) * min(_LONGEST_PAUSE_S, 0.2 * 2**number))


@contextmanager
def opener_to(hosts: Iterable[Host], asks: bool = False) -> Iterator[tuple[Opener, dict[str, Route]]]:
    """What opens connections for one command, and the route to each of its hosts. `asks`: as Client has it.

    Raises UsageError for invalid settings.
    """
    hosts = tuple(hosts)
    _make_room(len(hosts))
    with closing(Client(asks)) as client:
        routes = client.routes(hosts)
        with closing(Opener(client)) as opener:
            yield opener, routes


def _make_room(hosts: int) -> None:
    """Let this process open files for so many hosts, where it may: it begins with 1,024, on macOS with 256."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES + _FILES_OF_A_HOST * hosts
    if wanted > soft != resource.RLIM_INFINITY:
        with suppress(OSError, ValueError):  # more than the kernel's own limit
            room = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (room, most))


class _Hop:
    """One jump host, opened by the first host that needs it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.master: Master | None = None
        self.fault: SshFault | None = None


def way_in(client: Client, route: Route, before: Master | None) -> list[str]:
    """The options of ssh that lead to a place: straight, or over the connection to the jump host before it."""
    place = route.place._replace(jumps=None) if before else route.place
    if not before:
        return place.words
    # Without that connection it would connect itself: by a command that fails.
    line = [client.program, "-F", "none", "-S", before.path.replace("%", "%%"), "-o", "ControlMaster=no"]
    line += ["-o", "ProxyCommand=false", "-o", "LogLevel=ERROR", "-W", "[%h]:%p", "muster"]
    return [*place.words, "-o", f"ProxyCommand={shlex.join(line)}", "-o", "ProxyUseFdpass=no"]


def own(path: str) -> list[str]:
    """The options of ssh that log in, run nothing, and hold the connection until some time after its last client."""
    return ["-v", "-f", "-N", "-T", "-M", "-S", path, "-o", f"ControlPersist={_ALONE_S}"]


def login_socket(route: Route) -> str:
    """Where `muster login` holds a connection to this server open."""
    through = str(route.before.endpoint) if route.before else route.value("proxycommand")
    server = "\0".join([route.address, str(route.port), route.answer["user"][0], through])
    return f"{settings.home()}/.ssh/muster-{hashlib.sha256(server.encode()).hexdigest()[:16]}"


def join(path: str) -> Master | None:
    """The master of this user's that answers at a socket, if one does. It may have lost its host all the same."""
    with suppress(OSError, EOFError, mux.Refused):
        status = os.lstat(path)
        if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid():
            return Master(path)
    return None
