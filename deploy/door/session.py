"""SSH sessions: a host over as many connections as its server needs; `open_all` and `on_all` work on many at once.

The other packages use this module, and the rest of door/ serves it. settings.py writes the file by which the user's own
`ssh` is started, and asks what it makes of a host; connection.py lets it log in; mux.py speaks with it; command.py runs
a command, framed by framing.py; stream.py talks with one, terminal.py in this terminal; hung.py asks why one does not
end; trust.py adds host keys; login.py is for hosts that ask a person; faults.py has the errors, reasons.py tells which.
"""

from __future__ import annotations

import copy
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..core import fields
from ..core.errors import DeployError
from ..core.program import keep_typed
from ..core.results import Results
from ..core.scripts import Scripts
from ..core.text import last_line
from ..job import inventory
from ..job.inventory import Host
from . import command, framing, hung, mux, terminal
from .connection import Master, opener_to
from .faults import SshFault, Where, fault
from .framing import Terms
from .stream import LineStream, Pipe
from .trust import trust

__all__ = [
    "CommandFailed",
    "Done",
    "Session",
    "SshFault",
    "among",
    "on_all",
    "on_each",
    "open_again",
    "open_all",
    "trust",
]

T = TypeVar("T")
S = TypeVar("S")
CAP = 32
# Connections to one host, where its server allows few sessions on each.
MOST_MASTERS = 6
_TAKES_INPUT = (
    ": the standard input of a command does not reach it; does a start-up file read it (`read` in ~/.bashrc)?"
)
_PATH = fields.text(4096, r"/[^\x00-\x1f\x7f]*")
_SCRIPT = Scripts(__file__)


class Done(NamedTuple):
    """How a command ended: exit code (128 + n for signal n), and what it printed, as text."""

    code: int
    out: str
    err: str


class CommandFailed(DeployError):
    """A command on a host ended with a code other than 0: `done`."""

    def __init__(self, host: str, argv: Sequence[str], done: Done) -> None:
        last = last_line(done.err.strip() or done.out, "no output")
        super().__init__(f"{host}: `{framing.shown(argv)}` ended with code {done.code}: {last}")
        self.done = done


class Session:
    """One host, one connection that is open. Its methods may be called from several threads."""

    def __init__(
        self, host: Host, where: Where, master: Master, another: Callable[[], Master], sockets: Path | None = None
    ) -> None:
        """`another` opens one more connection to the host (raises SshFault). `sockets`: a folder that is ours alone."""
        self.host, self.name = host, host.name
        self._masters, self._another, self._opening = [master], another, threading.Lock()
        self._where, self._sockets = where, sockets
        self._front: tuple[str, ...] = ()
        self._made, self._making = dict[str, Any](), threading.Lock()

    @cached_property
    def home(self) -> str:
        """Our folder there, an absolute path. Raises SshFault if no POSIX shell answers or has our input, BadAnswer."""
        token = secrets.token_hex(8)
        try:
            done = self.run(_SCRIPT("home"), input=f"{token}\n".encode(), check=False)
        except SshFault as failed:
            raise self.explained(failed) from failed
        if done.code:
            last = last_line(done.err.strip() or done.out, "")
            ending = f"said {last!r}" if last else "said nothing"
            detail = f": `sh` ended with code {done.code} and {ending}; `ulimit -a` there shows its limits"
            raise fault("no-shell", self._where, detail)
        line, _, path = done.out.partition("\n")
        if line != token:
            raise fault("no-shell", self._where, _TAKES_INPUT)
        return _PATH(path.rstrip("\n"), "the home there")

    @property
    def is_open(self) -> bool:
        """Whether its connection stands, as far as anybody knows."""
        return self._masters[0].is_open

    @property
    def called_at(self) -> str:
        """The address at which this machine reaches the host; empty where another host or program calls it."""
        return self._masters[0].called_at

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
        moving: no time limit while data moves (framing.SLOWEST).
        Raises CommandFailed for a code other than 0, if `check`; SshFault (lost, slow, flood); any exception of
        `input` and on_line.
        """
        most = None if on_line else framing.MOST_ANSWER
        terms = Terms(None if moving else timeout_s, on_line, most=most, moving=moving)
        done = self._done(self._run(argv, input, terms))
        if check and done.code:
            raise CommandFailed(self.name, argv, done)
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
            stream = self._begun(lambda master: LineStream(master, self._where, hung.command(), hung.SHELL))
            try:
                silent = hung.parse(hung.heard(stream.read_line))
            finally:
                stream.close()
            if silent:
                words = "; ".join(folder.words for folder in silent[:3])
                detail = f"{failed.message.removeprefix(f'{self.name}: ')}: {words}"
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
            raise CommandFailed(self.name, argv, Done(code, "", err.decode(errors="replace")))
        return out

    def stream(self, argv: Sequence[str]) -> LineStream:
        """Start a command and talk with it, line by line. Raises SshFault."""
        return self._begun(lambda master: LineStream(master, self._where, [*self._front, *argv]))

    def converse(self, argv: Sequence[str]) -> int:
        """Run a command in this terminal (terminal.py) until it ends; returns its exit code. Raises SshFault."""
        return self._begun(lambda master: terminal.converse(master, self._where, argv))

    def tunnel(self, port: int) -> mux.Tunnel:
        """A connection to a port of the host's loopback. Raises DeployError if nothing listens there, SshFault."""
        master = self._masters[0]
        try:
            return master.dial(port)
        except mux.Refused as refused:
            if master.forbids:
                raise DeployError(
                    f"{self.name}: its SSH server forwards no ports", "AllowTcpForwarding in its sshd_config"
                ) from refused
            raise DeployError(f"{self.name}: nothing listens on 127.0.0.1:{port} there", "") from refused
        except (OSError, EOFError) as failed:
            raise self._gone() from failed

    def connect(self, path: str) -> socket.socket:
        """A connection to a socket of the host. A host that forbids it lets it end at once.

        Raises DeployError if this machine cannot listen for it, SshFault.
        """
        here = self.keep(path, lambda: self._forwarded(path))
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(framing.BEGIN_S)
            connection.connect(here)
        except OSError as failed:
            connection.close()
            raise self._gone() from failed
        return connection

    def _forwarded(self, path: str) -> str:
        """A path here which leads to that socket of the host."""
        assert self._sockets
        self._sockets.mkdir(mode=0o700, exist_ok=True)
        here = f"{self._sockets}/{secrets.token_hex(3)}"
        try:
            self._masters[0].forward(here, path)
        except mux.Refused as refused:
            raise DeployError(
                f"{self.name}: cannot make a socket for {path} here: {refused}", "set TMPDIR"
            ) from refused
        except (OSError, EOFError) as gone:
            raise self._gone() from gone
        return here

    def pipe(self, argv: Sequence[str]) -> Pipe:
        """Start a command and talk with it, in bytes. Raises SshFault."""
        return self._begun(lambda master: Pipe(master, self._where, argv))

    def lost(self) -> SshFault | None:
        """The fault of a connection that has ended meanwhile; None if it stands, as far as anybody knows."""
        return None if self.is_open else self._gone()

    def _gone(self) -> SshFault:
        return fault("lost", self._where, f" ({self._masters[0].why_gone()})")

    def keep(self, name: str, make: Callable[[], T]) -> T:
        """What a package above has made of this connection; made at the first call."""
        with self._making:
            if name not in self._made:
                self._made[name] = make()
            made: T = self._made[name]
            return made

    def close(self) -> None:
        """End the connection and everything that waits on it. A second call does nothing."""
        for master in list(self._masters):
            master.close()

    def _run(
        self, argv: Sequence[str], source: bytes | Iterable[bytes] | None, terms: Terms
    ) -> tuple[int, bytes, bytes]:
        argv = [*self._front, *argv]
        return self._begun(lambda master: command.run(master, self._where, argv, source, terms))

    def _begun(self, begin: Callable[[Master], T]) -> T:
        """Begin something on the first connection that has room: servers limit the sessions of each (MaxSessions)."""
        tried = 0
        while True:
            for at in range(tried, len(self._masters)):
                tried += 1
                try:
                    # The session lives as long as its first connection: another one that has ended is replaced.
                    if at and not self._masters[at].is_open:
                        self._masters[at] = self._another()
                    return begin(self._masters[at])
                except SshFault as full:
                    if full.kind != "sessions" or tried >= MOST_MASTERS:
                        raise
            with self._opening:
                if len(self._masters) == tried:
                    self._masters.append(self._another())

    @staticmethod
    def _done(ended: tuple[int, bytes, bytes]) -> Done:
        code, out, err = ended
        return Done(code, out.decode(errors="replace"), err.decode(errors="replace"))


@contextmanager
def open_all(hosts: Iterable[Host], ask_home: bool = True) -> Iterator[Results[Session]]:
    """Open sessions to all hosts, CAP at a time; close them at the end in any case.

    `ask_home`: ask for the home, and so for a working shell, at once; without it, the first command saves a round trip.
    A host that cannot be reached is a fault in the results; the caller decides whether to continue without it.
    Raises UsageError for invalid SSH settings, and for one machine under two names.
    """
    by_name = {host.name: host for host in hosts}
    keep_typed({name: host.destination for name, host in by_name.items()})
    with opener_to(by_name.values()) as (opener, routes):
        inventory.refuse_twins(by_name.values(), {name: route.endpoint for name, route in routes.items()})

        def open_one(host: Host) -> Session:
            route, sockets = routes[host.name], opener.client.folder / "to"
            master = opener.open(host, route)
            session = Session(host, route.where(host), master, lambda: opener.open(host, route), sockets)
            if ask_home:
                session.home  # noqa: B018 (asked now, so that a host without a shell is a fault of the opening)
            return session

        yield on_each(by_name, open_one)


def open_again(before: ExitStack, host: Host) -> Session:
    """A new session to a host in the place of what is open there: close `before` at the end. Raises DeployError."""
    before.close()
    return before.enter_context(open_all([host])).all()[host.name]


def among(sessions: Iterable[Session], names: Container[str]) -> list[Session]:
    """Those to the hosts of these names."""
    return [session for session in sessions if session.name in names]


def on_all(sessions: Iterable[Session], work: Callable[[Session], T], cap: int = CAP) -> Results[T]:
    """Call `work` with every session, `cap` at a time in threads; a DeployError is that host's fault.

    Any other exception, and Ctrl-C, ends this call at once. Work that still runs then ends with its session.
    """
    return on_each({session.name: session for session in sessions}, work, cap)


def on_each(items: dict[str, S], work: Callable[[S], T], cap: int = CAP) -> Results[T]:
    """The same with anything of each host, by its name.

    Uses daemon threads and not an executor, whose exit would wait for them after Ctrl-C.
    """
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
        threading.Thread(target=copy_context().run, args=(serve,), daemon=True, name=f"muster-host-{number}").start()
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
