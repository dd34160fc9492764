"""Connections that `ssh` holds open: how Muster opens, shares and ends them.

Each host has one connection, which all commands on it use (session.py opens more if the host's server allows few
commands at once on each); hosts behind one jump host share the connection to that jump host. No connection outlives
the Muster command that opened it, except those of `muster login`. This process ends each by a message. If this process
is killed, the guard (scripts/guard.sh) ends them. If the guard is killed too, each ssh ends some seconds after its last
client. Muster also uses connections that `muster login` or the user has opened, and leaves them open.
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
from .faults import FaultPlace, SshFault, fault
from .settings import Client, Place, Route

# Measured with 32 hosts behind one jump host: a server with MaxStartups 2 admits all logins within 10 tries. If other
# people's logins hold all its places, all tries together take some 25 s.
TRIES = 16
_LONGEST_PAUSE_S = 2.0
# A whole login may take this many times the connect timeout: ssh's own timeout ends with the exchange of keys.
_LOGIN_FACTOR = 3
# How long ssh keeps a connection open without a client. On a busy machine, the first client may come seconds after the
# login.
_IDLE_S = 10
_FIRST_S, _HELLO_S, _LAST_WORDS_S = 30.0, 5.0, 0.5
# The open files that a Muster command needs: for itself, and for each host (a connection and a few streams at a time).
_FILES, _FILES_PER_HOST = 256, 16
# Kinds of fault where only a person, a token or Kerberos can log in.
_NEEDS_A_PERSON = ("second-factor", "password-only", "key-rejected", "closed")
_MOST_WORDS = 64 << 10
_SCRIPT = Scripts(__file__)


class StderrReader(threading.Thread):
    """Reads what an ssh process writes to its standard error until it ends; keeps the beginning and the end of it."""

    def __init__(self, pipe: int) -> None:
        super().__init__(daemon=True, name="muster-ssh-words")
        self._pipe, self._begin, self._end = pipe, bytearray(), bytearray()
        self.start()

    def run(self) -> None:
        """Read to the end. The text is read even if nothing uses it, so that ssh never blocks on a full pipe."""
        while piece := os.read(self._pipe, 1 << 16):
            room = _MOST_WORDS - len(self._begin)
            self._begin += piece[:room]
            self._end += piece[room:]
            if len(self._end) > 2 * _MOST_WORDS:
                del self._end[:-_MOST_WORDS]
        os.close(self._pipe)

    def text(self, wait_s: float = 0.0) -> str:
        """Return what ssh has written so far; first wait up to `wait_s` seconds for it to end."""
        self.join(wait_s)
        return bytes(self._begin + self._end).decode(errors="replace")


class Master:
    """One connection, reached by the socket at `path`.

    `words`: the output of its ssh, if Muster started that ssh and so must end it. A connection that the user or
    `muster login` opened has none, and stays open.
    """

    def __init__(self, path: str, words: StderrReader | None = None) -> None:
        """Raises OSError, EOFError or mux.Refused if no ssh master answers at the socket."""
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
        """Whether the connection is open, as far as this machine can tell without asking the host."""
        return not self._closed and self._control.is_connected()

    @property
    def called_at(self) -> str:
        """The address at which this machine reaches the host; empty if it is not known.

        It is not known if a jump host or ProxyCommand connects to the host, or if Muster uses a connection that
        `muster login` or the user has opened.
        """
        return reasons.called_at(self.last_words)

    @property
    def forbids_forwarding(self) -> bool:
        """Whether the host has just reported that its SSH server forbids forwarding."""
        return reasons.forbids_forwarding(self.last_words)

    @property
    def last_words(self) -> str:
        """What its ssh has written so far; empty if Muster did not start that ssh."""
        return self._words.text() if self._words else ""

    def start(self, line: str) -> mux.Channel:
        """Start a command. Raises mux.Refused, OSError, EOFError; TimeoutError if the host does not answer."""
        return mux.Channel(self.path, line, framing.BEGIN_S)

    def dial(self, port: int) -> mux.Tunnel:
        """Connect to a port on the host's loopback interface. Raises the same errors as `start`."""
        return mux.Tunnel(self.path, "127.0.0.1", port, _FIRST_S)

    def forward(self, here: str, remote: str) -> None:
        """Forward the socket path `here` on this machine to a socket of the host, until this connection is closed.

        Raises the same errors as `start`.
        """
        self._control.forward(here, remote)
        self._forwards.append((here, remote))

    def why_gone(self) -> str:
        """Return why a command ended without an exit code, in words."""
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
        """Make the ssh master close this connection, even if the user opened it."""
        try:
            control = mux.Control(self.path, _HELLO_S / 5)
            control.end()
            control.close()
        except EOFError:
            pass  # the master has ended already
        except (OSError, mux.Refused):  # the master does not answer; a process stopped by SIGSTOP does not either
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._process, signal.SIGKILL)
        self._control.close()

    def close(self) -> None:
        """Stop using the connection, and end it if Muster opened it. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._words and self._control.is_connected():
            self.end()
        with suppress(OSError, EOFError, mux.Refused):
            for here, remote in () if self._words else self._forwards:  # the user's own connection stays open
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
        # In a session of its own: a Ctrl-C in this terminal must not reach the guard; this process handles it.
        self._guard = subprocess.Popen(line, stdin=subprocess.PIPE, start_new_session=True)

    def open(self, host: Host, route: Route, jump: bool = False) -> Master:
        """Return a connection to a host: that of `muster login`, else a new one, else one that the user opened.

        The user's own connection serves only if a login needs a person. `jump`: the route leads to a jump host on the
        way to `host`. Raises SshFault.
        """
        if joined := find_master(login_socket(route)):
            return self._hold(joined)
        try:
            return self._log_in(host, route, route.fault_place(host, jump))
        except SshFault as failed:
            users = self.client.users_socket(route.place) if failed.kind in _NEEDS_A_PERSON else ""
            if users and (joined := find_master(users)):
                return self._hold(joined)
            raise

    def close(self) -> None:
        """End every connection that Muster opened, and every login that is still running."""
        with self._lock:
            self._over = True
            logins, masters = set(self._logins), list(self._masters)
        for process in logins:
            settings.kill_group(process)
        for master in reversed(masters):
            master.close()
        self._guard.kill()
        self._guard.communicate()

    def _log_in(self, host: Host, route: Route, where: FaultPlace) -> Master:
        """Open a connection. Tries again if the server drops the login, as a busy server does."""
        before = self._reach(host, route.before) if route.before else None
        for number in _tries():
            try:
                return self._hold(self._try(route, where, before, number))
            except SshFault as failed:
                if failed.kind != "dropped" or number == TRIES:
                    raise
        raise AssertionError

    def _reach(self, host: Host, route: Route) -> Master:
        """Return the connection to a jump host, which the hosts behind it share.

        If the login to the jump host fails, each host behind it gets that fault.
        """
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

    def try_login(self, host: Host, route: Route, options: Mapping[str, str]) -> SshFault | None:
        """Try to log in with these options, to see a host's keys. Returns None if ssh got as far as the login.

        Otherwise returns the fault of the last try, which stopped ssh before the login. Raises SshFault if the jump
        host before this host cannot be reached.
        """
        before = self._reach(host, route.before) if route.before else None
        given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        for number in _tries():
            try:
                where = route.fault_place(host)
                _, words = self._run(
                    route, where, [*route_options(self.client, route, before), *given, "-v", "-T", "-n"]
                )
                failed = self._fault(words, route, where, number, before)
            except SshFault as slow:
                failed = slow
            if failed.kind != "dropped":
                break
        return None if failed.kind in _NEEDS_A_PERSON else failed

    def _try(self, route: Route, where: FaultPlace, before: Master | None, number: int) -> Master:
        path = f"{self.client.folder}/{next(self._numbers)}"
        code, words = self._run(route, where, [*route_options(self.client, route, before), *master_options(path)])
        if code:
            raise self._fault(words, route, where, number, before)
        try:
            return Master(path, words)
        except (OSError, EOFError, mux.Refused) as gone:
            raise fault("lost", where, f" ({str(gone) or 'just after the login'})") from gone

    def _fault(
        self, words: StderrReader, route: Route, where: FaultPlace, number: int, before: Master | None
    ) -> SshFault:
        text = self.client.with_original_paths(words.text(_LAST_WORDS_S))
        return reasons.fault_of(text, route, where, number, before.last_words if before else "")

    def _run(self, route: Route, where: FaultPlace, options: list[str]) -> tuple[int, StderrReader]:
        """Run ssh until it ends or goes into the background. Raises SshFault if that takes too long."""
        process, words = self._begin(self.client.line(route.place, *options))
        limit_s = _LOGIN_FACTOR * route.timeout_s
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

    def _begin(self, line: list[str]) -> tuple[subprocess.Popen[bytes], StderrReader]:
        reading, writing = os.pipe()
        # ssh must write OpenSSH's untranslated messages, and must not ask for a password in a window.
        environment = {**os.environ, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}
        nothing = subprocess.DEVNULL
        try:
            with self._lock:
                if self._over:
                    raise DeployError("this command is over")
                # In a session of its own: a Ctrl-C does not reach ssh, and ssh has no terminal to ask on.
                process = subprocess.Popen(
                    line, stdin=nothing, stdout=nothing, stderr=writing, env=environment, start_new_session=True
                )
                self._logins.add(process.pid)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return process, StderrReader(reading)

    def _hold(self, master: Master) -> Master:
        with self._lock:
            over = self._over
            self._masters.append(master)
        if over:
            master.close()
        return master


def _tries() -> Iterator[int]:
    """Yield the number of each try to log in, with a pause after each."""
    for number in range(1, TRIES + 1):
        yield number
        # The pause is random, because the server accepts only a few logins at the same time.
        time.sleep(random.uniform(0.2, 1) * min(_LONGEST_PAUSE_S, 0.2 * 2**number))


@contextmanager
def opener_to(hosts: Iterable[Host], asks: bool = False) -> Iterator[tuple[Opener, dict[str, Route]]]:
    """Yield the opener of one command's connections, and the route to each of its hosts.

    `asks`: see Client. Raises UsageError for invalid settings.
    """
    hosts = tuple(hosts)
    _make_room(len(hosts))
    with closing(Client(asks)) as client:
        routes = client.routes(hosts)
        with closing(Opener(client)) as opener:
            yield opener, routes


def _make_room(hosts: int) -> None:
    """Raise this process's limit of open files for this many hosts, if allowed: it starts at 1,024, on macOS at 256."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES + _FILES_PER_HOST * hosts
    if wanted > soft != resource.RLIM_INFINITY:
        with suppress(OSError, ValueError):  # the kernel refuses more than its own limit
            room = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (room, most))


class _Hop:
    """The connection to one jump host, opened for the first host that needs it, or the fault of opening it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.master: Master | None = None
        self.fault: SshFault | None = None


def route_options(client: Client, route: Route, before: Master | None) -> list[str]:
    """Return the ssh options for reaching a place: directly, or over the connection `before` to its jump host."""
    place = route.place._replace(jumps=None) if before else route.place
    if not before:
        return place.words
    # If the connection `before` is gone, this inner ssh would connect by itself: ProxyCommand=false makes that fail.
    line = [client.program, "-F", "none", "-S", before.path.replace("%", "%%"), "-o", "ControlMaster=no"]
    line += ["-o", "ProxyCommand=false", "-o", "LogLevel=ERROR", "-W", "[%h]:%p", "muster"]
    return [*place.words, "-o", f"ProxyCommand={shlex.join(line)}", "-o", "ProxyUseFdpass=no"]


def master_options(path: str) -> list[str]:
    """Return the ssh options to log in, run nothing, and keep the connection until _IDLE_S after its last client."""
    return ["-v", "-f", "-N", "-T", "-M", "-S", path, "-o", f"ControlPersist={_IDLE_S}"]


def login_socket(route: Route) -> str:
    """Return the path of the socket of `muster login`'s connection to this server."""
    through = str(route.before.endpoint) if route.before else route.value("proxycommand")
    server = "\0".join([route.address, str(route.port), route.answer["user"][0], through])
    return f"{settings.home()}/.ssh/muster-{hashlib.sha256(server.encode()).hexdigest()[:16]}"


def find_master(path: str) -> Master | None:
    """Return this user's ssh master that answers at the socket `path`, or None. It may have lost its host already."""
    with suppress(OSError, EOFError, mux.Refused):
        status = os.lstat(path)
        if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid():
            return Master(path)
    return None
