"""SSH sessions: one per host, with as many connections as its server needs; `open_all` and `on_all` serve many hosts.

The other packages use this module; the rest of door/ implements it. settings.py writes the settings file for the user's
own `ssh`, and asks ssh what its settings mean for a host. connection.py logs in with that `ssh`; mux.py speaks its
protocol. command.py runs a command, framed by framing.py; stream.py exchanges lines or bytes with a running command;
terminal.py connects one to this terminal. hung.py finds out why a command does not end. trust.py adds host keys.
login.py is for hosts that ask a person. faults.py defines the errors; reasons.py recognizes them in what ssh prints.
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
from ..core.program import remember_typed
from ..core.results import Results
from ..core.scripts import Scripts
from ..core.text import last_line
from ..job import inventory
from ..job.inventory import Host
from . import command, framing, hung, mux, terminal
from .connection import Master, opener_to
from .faults import FaultPlace, SshFault, fault
from .framing import Limits
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
# The most connections to one host: its server may allow few sessions on each.
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
    """A command on a host ended with an exit code other than 0; `done` has the code and the output."""

    def __init__(self, host: str, argv: Sequence[str], done: Done) -> None:
        last = last_line(done.err.strip() or done.out, "no output")
        super().__init__(f"{host}: `{framing.shown(argv)}` ended with code {done.code}: {last}")
        self.done = done


class Session:
    """An open session to one host. Its methods may be called from several threads."""

    def __init__(
        self, host: Host, where: FaultPlace, master: Master, another: Callable[[], Master], sockets: Path | None = None
    ) -> None:
        """`another` opens one more connection to the host (raises SshFault). `sockets`: a folder only Muster uses."""
        self.host, self.name = host, host.name
        self._masters, self._another, self._opening = [master], another, threading.Lock()
        self._where, self._sockets = where, sockets
        self._front: tuple[str, ...] = ()
        self._made, self._making = dict[str, Any](), threading.Lock()

    @cached_property
    def home(self) -> str:
        """The absolute path of Muster's folder on the host.

        Raises SshFault if no POSIX shell answers or our input does not reach it; BadAnswer if the path is malformed.
        """
        token = secrets.token_hex(8)
        try:
            done = self.run(_SCRIPT("home"), input=f"{token}\n".encode(), check=False)
        except SshFault as failed:
            raise self.add_hung_folder(failed) from failed
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
        """Whether its connection is open, as far as this machine can tell without asking the host."""
        return self._masters[0].is_open

    @property
    def called_at(self) -> str:
        """The address at which this machine reaches the host; empty if it is not known.

        It is not known if a jump host or ProxyCommand connects to the host, or if Muster uses a connection that
        `muster login` or the user has opened.
        """
        return self._masters[0].called_at

    def at_home(self, folder: str) -> Session:
        """Return a session on the same connection whose commands have `folder` as $HOME. Close only the original."""
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
        """Run a command and wait until it ends.

        argv: this function quotes it; every user of the host can read it, so it must hold no secret. input: the
        command's standard input, sent as fast as the host reads it. on_line: receives each line of both output streams;
        the result then has only the end of each. moving: no time limit while data moves (framing.SLOWEST).
        Raises CommandFailed for an exit code other than 0, if `check`; SshFault (lost, slow, flood); any exception that
        `input` or `on_line` raises.
        """
        most = None if on_line else framing.MOST_ANSWER
        limits = Limits(None if moving else timeout_s, on_line, most=most, moving=moving)
        done = self._done(self._run(argv, input, limits))
        if check and done.code:
            raise CommandFailed(self.name, argv, done)
        return done

    def receive(self, argv: Sequence[str], take: Callable[[bytes], None], input: bytes | None = None) -> Done:
        """Run a command with much output. `take` receives the output piece by piece and must limit its size.

        Raises the same errors as `run`, except for an exit code other than 0, and any exception that `take` raises.
        """
        return self._done(self._run(argv, input, Limits(None, take=take, most=None, moving=True)))

    def add_hung_folder(self, failed: SshFault) -> SshFault:
        """Add to the fault of a slow command the folder that does not answer; return it as it is if there is none."""
        if failed.kind != "slow":
            return failed
        with suppress(DeployError):
            stream = self._begun(lambda master: LineStream(master, self._where, hung.command(), hung.SHELL))
            try:
                silent = hung.parse(hung.read_answers(stream.read_line))
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
        code, out, err = self._run(argv, None, Limits())
        if code:
            raise CommandFailed(self.name, argv, Done(code, "", err.decode(errors="replace")))
        return out

    def stream(self, argv: Sequence[str]) -> LineStream:
        """Start a command and exchange lines with it. Raises SshFault."""
        return self._begun(lambda master: LineStream(master, self._where, [*self._front, *argv]))

    def converse(self, argv: Sequence[str]) -> int:
        """Run a command in this terminal (terminal.py) until it ends; returns its exit code. Raises SshFault."""
        return self._begun(lambda master: terminal.converse(master, self._where, argv))

    def tunnel(self, port: int) -> mux.Tunnel:
        """Connect to a port on the host's loopback interface. Raises DeployError if nothing listens there, SshFault."""
        master = self._masters[0]
        try:
            return master.dial(port)
        except mux.Refused as refused:
            if master.forbids_forwarding:
                raise DeployError(
                    f"{self.name}: its SSH server forwards no ports", "AllowTcpForwarding in its sshd_config"
                ) from refused
            raise DeployError(f"{self.name}: nothing listens on 127.0.0.1:{port} there", "") from refused
        except (OSError, EOFError) as failed:
            raise self._gone() from failed

    def connect(self, path: str) -> socket.socket:
        """Connect to a socket of the host. If the host forbids that, the connection ends immediately.

        Raises DeployError if this machine cannot create the local end of the forwarding, SshFault.
        """
        here = self.get_or_make(path, lambda: self._forwarded(path))
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(framing.BEGIN_S)
            connection.connect(here)
        except OSError as failed:
            connection.close()
            raise self._gone() from failed
        return connection

    def _forwarded(self, path: str) -> str:
        """Forward a new socket path on this machine to that socket of the host; return the new path."""
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
        """Start a command and exchange bytes with it. Raises SshFault."""
        return self._begun(lambda master: Pipe(master, self._where, argv))

    def lost(self) -> SshFault | None:
        """Return the fault if the connection has ended; None while it is open as far as this machine can tell."""
        return None if self.is_open else self._gone()

    def _gone(self) -> SshFault:
        return fault("lost", self._where, f" ({self._masters[0].why_gone()})")

    def get_or_make(self, name: str, make: Callable[[], T]) -> T:
        """Return the object that a caller keeps with this session under `name`; the first call makes it."""
        with self._making:
            if name not in self._made:
                self._made[name] = make()
            made: T = self._made[name]
            return made

    def close(self) -> None:
        """Close the connections and everything that waits on them. A second call does nothing."""
        for master in list(self._masters):
            master.close()

    def _run(
        self, argv: Sequence[str], source: bytes | Iterable[bytes] | None, limits: Limits
    ) -> tuple[int, bytes, bytes]:
        argv = [*self._front, *argv]
        return self._begun(lambda master: command.run(master, self._where, argv, source, limits))

    def _begun(self, begin: Callable[[Master], T]) -> T:
        """Call `begin` with the first connection that has room: a server limits the sessions on each (MaxSessions)."""
        tried = 0
        while True:
            for at in range(tried, len(self._masters)):
                tried += 1
                try:
                    # The session lives as long as its first connection. Any later connection is replaced if it ended.
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
    """Open sessions to all hosts, CAP at a time, and always close them at the end.

    `ask_home`: ask each host for its home immediately, which also checks its shell; False saves that round trip.
    A host that cannot be reached is a fault in the results; the caller decides whether to continue without it.
    Raises UsageError for invalid SSH settings, and for one machine under two names.
    """
    by_name = {host.name: host for host in hosts}
    remember_typed({name: host.destination for name, host in by_name.items()})
    with opener_to(by_name.values()) as (opener, routes):
        inventory.refuse_twins(by_name.values(), {name: route.endpoint for name, route in routes.items()})

        def open_one(host: Host) -> Session:
            route, sockets = routes[host.name], opener.client.folder / "to"
            master = opener.open(host, route)
            session = Session(host, route.fault_place(host), master, lambda: opener.open(host, route), sockets)
            if ask_home:
                session.home  # noqa: B018 (asked now, so that a host without a shell is a fault of the opening)
            return session

        yield on_each(by_name, open_one)


def open_again(before: ExitStack, host: Host) -> Session:
    """Close `before`, then open a new session to the host; the caller closes `before` again. Raises DeployError."""
    before.close()
    return before.enter_context(open_all([host])).all()[host.name]


def among(sessions: Iterable[Session], names: Container[str]) -> list[Session]:
    """Return the sessions whose hosts have these names."""
    return [session for session in sessions if session.name in names]


def on_all(sessions: Iterable[Session], work: Callable[[Session], T], cap: int = CAP) -> Results[T]:
    """Call `work` with every session, `cap` at a time in threads; a DeployError becomes that host's fault.

    Any other exception, and Ctrl-C, ends this call immediately. Work that is still running ends when its session does.
    """
    return on_each({session.name: session for session in sessions}, work, cap)


def on_each(items: dict[str, S], work: Callable[[S], T], cap: int = CAP) -> Results[T]:
    """Do what `on_all` does for `items`: host name -> the value to call `work` with.

    Uses daemon threads, because an executor would wait for its threads at exit after Ctrl-C.
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
