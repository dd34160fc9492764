"""SSH sessions: a session is one host over one connection; `open_all` and `on_all` work on many at once.

The other packages use this module, and the rest of ssh/ serves it. It uses paramiko, without agent forwarding,
passwords or prompts. settings.py reads the user's SSH settings (ask, reader, rules, keywords, tokens, way);
connect.py opens a connection and retries (sockets, transport, host_keys, keys); command.py runs a command; stream.py
talks with one, terminal.py in this terminal; hung.py asks why one does not end; trust.py adds host keys; faults.py has
the errors.
"""

from __future__ import annotations

import copy
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from paramiko import Channel, Transport
from paramiko.ssh_exception import ChannelException, SSHException

from ..config import inventory
from ..config.inventory import Host
from ..core import fields
from ..core.errors import DeployError
from ..core.results import Results
from ..core.scripts import Scripts
from ..door import framing, hung
from ..door.faults import SshFault, fault
from ..door.framing import Terms
from . import command, settings, terminal
from .connect import Link, Opener
from .stream import LineStream
from .trust import HostKey, add_keys, scan_keys, trust

__all__ = [
    "CommandFailed",
    "Done",
    "HostKey",
    "Session",
    "SshFault",
    "add_keys",
    "on_all",
    "open_all",
    "scan_keys",
    "trust",
]

T = TypeVar("T")
S = TypeVar("S")
CAP = 32
# Connections to one host, where its server allows few sessions on each.
MOST_LINKS = 6
# OPEN_ADMINISTRATIVELY_PROHIBITED of RFC 4254.
_PROHIBITED = 1
_TAKES_INPUT = (
    ": the standard input of a command does not reach it; does a start-up file read it (`read` in ~/.bashrc)?"
)
_PATH = fields.text(4096, r"/[^\x00-\x1f\x7f]*")
_SCRIPT = Scripts(hung.__file__)


class Done(NamedTuple):
    """How a command ended: exit code (128 + n for signal n), and what it printed, as text."""

    code: int
    out: str
    err: str


class CommandFailed(DeployError):
    """A command on a host ended with a code other than 0: `done`."""

    def __init__(self, host: str, argv: Sequence[str], done: Done) -> None:
        last_line = (done.err.strip() or done.out.strip() or "no output").splitlines()[-1]
        super().__init__(f"{host}: `{framing.shown(argv)}` ended with code {done.code}: {last_line}")
        self.done = done


class Session:
    """One host, one connection that is open. Its methods may be called from several threads."""

    def __init__(self, host: Host, link: Link, another: Callable[[], Link] | None = None) -> None:
        """`another` opens one more connection to the host. Raises SshFault."""
        self.host = host
        self._links, self._another, self._opening = list[Link](), another, threading.Lock()
        self._where = link.way.where(host, jump=False)
        self._front: tuple[str, ...] = ()
        self._closed = threading.Event()
        self._add(link)

    @cached_property
    def home(self) -> str:
        """Our folder there, an absolute path. Raises SshFault if no POSIX shell answers or has our input, BadAnswer."""
        token = secrets.token_hex(8)
        try:
            done = self.run(_SCRIPT("home"), input=f"{token}\n".encode(), check=False)
        except SshFault as failed:
            raise self.explained(failed) from failed
        if done.code:
            words = (done.err.strip() or done.out.strip()).splitlines()
            ending = f"said {words[-1]!r}" if words else "said nothing"
            detail = f": `sh` ended with code {done.code} and {ending}; `ulimit -a` there shows its limits"
            raise fault("no-shell", self._where, detail)
        line, _, path = done.out.partition("\n")
        if line != token:
            raise fault("no-shell", self._where, _TAKES_INPUT)
        return _PATH(path.rstrip("\n"), "the home there")

    @property
    def is_open(self) -> bool:
        """Whether its connection stands, as far as anybody knows."""
        return not self._closed.is_set() and bool(self._links[0].transport.is_active())

    @property
    def called_at(self) -> str:
        """The address at which this machine reaches the host; empty where another host or program calls it."""
        link = self._links[0]
        direct = link.before is None and link.proxy is None and isinstance(link.transport, Transport)
        return str(link.transport.getpeername()[0]) if direct else ""

    def at_home(self, folder: str) -> Session:
        """Return a session on this connection whose commands have the home `folder`. Close only the first session."""
        other = copy.copy(self)
        other.__dict__.pop("home", None)
        other._front = ("env", f"HOME={folder}")
        return other

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | Iterable[bytes] | None = None,
        timeout_s: float | None = 60,
        check: bool = True,
        on_line: Callable[[str], None] | None = None,
        moving: bool = False,
    ) -> Done:
        """Run a command to its end.

        argv: quoted here; everybody on the host can read it, so it must hold no secret. input: the command's standard
        input, sent as fast as the host reads it. on_line: gets each line of both streams; then only the end is kept.
        moving: no time limit while data moves (command.SLOWEST).
        Raises CommandFailed for a code other than 0, if `check`; SshFault (lost, slow, flood); any exception of
        `input` and on_line.
        """
        most = None if on_line else framing.MOST_ANSWER
        terms = Terms(None if moving else timeout_s, on_line, most=most, moving=moving)
        done = self._done(self._run(argv, input, terms))
        if check and done.code:
            raise CommandFailed(self.host.name, argv, done)
        return done

    def receive(self, argv: Sequence[str], take: Callable[[bytes], None], input: bytes | None = None) -> Done:
        """Run a command with much output, which `take` gets piece by piece and must limit.

        Raises as `run` does, but not for a code other than 0; and any exception of `take`.
        """
        return self._done(self._run(argv, input, Terms(None, take=take, most=None, moving=True)))

    def explained(self, failed: SshFault) -> SshFault:
        """The fault of a command that did not end, with the folder that it waits for; itself, if none is known."""
        if failed.kind != "slow":
            return failed
        with suppress(DeployError):
            stream = self._begun(lambda link: LineStream(link, self._where, hung.command(), hung.SHELL))
            try:
                silent = hung.parse(hung.heard(stream.read_line))
            finally:
                stream.close()
            if silent:
                words = "; ".join(folder.words for folder in silent[:3])
                detail = f"{failed.message.removeprefix(f'{self.host.name}: ')}: {words}"
                return fault("hung", self._where, detail, fix=silent[0].fix)
        return failed

    def put(self, data: bytes, remote_path: str, mode: int = 0o600) -> None:
        """Write a whole file or nothing, and make its folder (0700) if needed. Raises CommandFailed, SshFault."""
        aside = f"{id(data):x}-{threading.get_ident():x}.part"
        self.run(_SCRIPT("put", remote_path, aside, f"{mode:o}", str(len(data))), input=data)

    def read(self, remote_path: str) -> bytes:
        """A file's bytes. Raises CommandFailed if it cannot be read, SshFault."""
        argv = ["cat", "--", remote_path]
        code, out, err = self._run(argv, None, Terms())
        if code:
            raise CommandFailed(self.host.name, argv, Done(code, "", err.decode(errors="replace")))
        return out

    def stream(self, argv: Sequence[str]) -> LineStream:
        """Start a command and talk with it, line by line. Raises SshFault."""
        return self._begun(lambda transport: LineStream(transport, self._where, argv))

    def converse(self, argv: Sequence[str]) -> int:
        """Run a command in this terminal (terminal.py) until it ends; returns its exit code. Raises SshFault."""
        return self._begun(lambda transport: terminal.converse(transport, self._where, argv))

    def tunnel(self, port: int) -> Channel:
        """A connection to a port of the host's loopback. Raises DeployError if nothing listens there, SshFault."""
        try:
            return self._links[0].transport.open_channel(
                "direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0), timeout=10.0
            )
        except ChannelException as refused:
            if refused.code == _PROHIBITED:
                raise DeployError(
                    f"{self.host.name}: its SSH server forwards no ports", "AllowTcpForwarding in its sshd_config"
                ) from refused
            raise DeployError(f"{self.host.name}: nothing listens on 127.0.0.1:{port} there", "") from refused
        except (SSHException, OSError, EOFError) as failed:
            raise fault("lost", self._where, f" ({failed})") from failed

    def close(self) -> None:
        """End the connection and everything that waits on it. A second call does nothing."""
        self._closed.set()
        for link in list(self._links):
            link.abandon()

    def _run(
        self, argv: Sequence[str], source: bytes | Iterable[bytes] | None, terms: Terms
    ) -> tuple[int, bytes, bytes]:
        return self._begun(lambda transport: command.run(transport, self._where, [*self._front, *argv], source, terms))

    def _begun(self, begin: Callable[[Any], T]) -> T:
        """Begin something on the first connection that has room: servers limit the sessions of each (MaxSessions)."""
        tried = 0
        while True:
            for link in self._links[tried:]:
                tried += 1
                try:
                    return begin(link.transport)
                except SshFault as full:
                    if full.kind != "sessions" or not self._another or tried >= MOST_LINKS:
                        raise
            with self._opening:
                if len(self._links) == tried and self._another:
                    self._add(self._another())

    def _add(self, link: Link) -> None:
        self._links.append(link)
        threading.Thread(
            target=self._keep_alive, args=[link], daemon=True, name=f"muster-pulse-{self.host.name}"
        ).start()

    @staticmethod
    def _done(ended: tuple[int, bytes, bytes]) -> Done:
        code, out, err = ended
        return Done(code, out.decode(errors="replace"), err.decode(errors="replace"))

    def _keep_alive(self, link: Link) -> None:
        """Ask for an answer regularly: command.py treats a silent link as dead.

        Each link has a thread of its own, because the call waits for the answer: a dead link would silence the others.
        """
        while not self._closed.wait(framing.PULSE_S) and link.transport.is_active():
            with suppress(SSHException, OSError, EOFError):
                link.transport.global_request("keepalive@openssh.com", wait=True)


@contextmanager
def open_all(hosts: Iterable[Host], cap: int = CAP, ask_home: bool = True) -> Iterator[Results[Session]]:
    """Open sessions to all hosts, `cap` at a time; close them at the end in any case.

    `ask_home`: ask for the home, and so for a working shell, at once; without it, the first command saves a round trip.
    A host that cannot be reached is a fault in the results; the caller decides whether to continue without it.
    Raises UsageError for invalid SSH settings, and for one machine under two names.
    """
    by_name = {host.name: host for host in hosts}
    links = {name: Link(way) for name, way in settings.load().ways(by_name.values()).items()}
    inventory.refuse_twins(by_name.values(), {name: link.way.endpoint for name, link in links.items()})
    opener, over, opened, extra = Opener(), threading.Event(), list[Session](), list[Link]()

    def another(host: Host) -> Link:
        fresh = Link(links[host.name].way)
        extra.append(fresh)
        opener.open(host, fresh)
        return fresh

    def open_one(host: Host) -> Session:
        link = links[host.name]
        opener.open(host, link)
        if over.is_set():
            link.abandon()
        session = Session(host, link, lambda: another(host))
        opened.append(session)
        if ask_home:
            session.home  # noqa: B018 (asked now, so that a host without a shell is a fault of the opening)
        return session

    try:
        yield _each(by_name, open_one, cap)
    finally:
        over.set()
        for session in opened:
            session.close()
        for link in (*links.values(), *extra):
            link.abandon()
        opener.close()


def on_all(sessions: Iterable[Session], work: Callable[[Session], T], cap: int = CAP) -> Results[T]:
    """Call `work` with every session, `cap` at a time in threads; a DeployError is that host's fault.

    Any other exception, and Ctrl-C, ends this call at once. Work that still runs then ends with its session.
    """
    return _each({session.host.name: session for session in sessions}, work, cap)


def _each(items: dict[str, S], work: Callable[[S], T], cap: int) -> Results[T]:
    """Uses daemon threads and not an executor, whose exit would wait for them after Ctrl-C."""
    todo = iter(list(items.items()))
    lock, stop = threading.Lock(), threading.Event()
    ended: queue.SimpleQueue[tuple[str, T | BaseException]] = queue.SimpleQueue()

    def serve() -> None:
        while not stop.is_set():
            with lock:
                pair = next(todo, None)
            if pair is None:
                return
            try:
                ended.put((pair[0], work(pair[1])))
            except BaseException as failed:
                ended.put((pair[0], failed))

    for number in range(min(cap, len(items))):
        threading.Thread(target=serve, daemon=True, name=f"muster-host-{number}").start()
    outcomes: dict[str, T | DeployError] = {}
    try:
        for _ in items:
            name, outcome = ended.get()
            if isinstance(outcome, BaseException) and not isinstance(outcome, DeployError):
                raise outcome
            outcomes[name] = outcome
    finally:
        stop.set()
    return Results({name: outcomes[name] for name in items})
