"""The settings file with which Muster starts the user's `ssh`, and what these settings mean for each host.

One generated file serves all logins and jump hosts. It has three parts, and ssh takes the first value that it finds:
first settings that the user must not loosen, then the user's own settings, then defaults. `ssh -G` prints the result
for a host; Muster needs it for its error messages, and to see which hosts share a jump host.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..core.errors import UsageError
from ..core.suggest import near_match
from ..job import values as values
from ..job.inventory import Host
from . import framing
from .faults import VARIABLE, FaultPlace, typed_ssh

# What `ssh -G` prints: keyword in lower case -> its values, one for each line.
Answer = dict[str, tuple[str, ...]]
# A program must not ask questions, must not trust a new host key, and must notice a dead link.
_STRICT = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "VerifyHostKeyDNS": "no",
    "UpdateHostKeys": "no",
    "NoHostAuthenticationForLocalhost": "no",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "Tunnel": "no",
    "RequestTTY": "no",
    "RemoteCommand": "none",
    "ControlMaster": "no",
    "ControlPath": "none",
    "ServerAliveCountMax": str(framing.PULSES),
}
# AES-GCM is twice as fast as ssh's first choice if the processor has instructions for it.
_DEFAULTS = {"ConnectTimeout": "10", "Ciphers": "^aes128-gcm@openssh.com"}
# If one of these is on, ssh may accept a host key that no person has looked at.
_TRUSTING = ("nohostauthenticationforlocalhost", "verifyhostkeydns")
_SYSTEM = Path("/etc/ssh/ssh_config")
OLDEST, _INSTALL = "8.2", "install OpenSSH's client (package openssh-client)"
# Limits for one call of ssh or ssh-keygen: a command of `Match exec`, or a name server, may be slow. _MOST_CALLS: how
# many calls of `ssh -G` run at the same time.
_LONGEST_S, _MOST_BYTES = 30.0, 1 << 20
_MOST_CALLS = 8
# The most jump hosts in a row. More of them are a circle that makes a new name each time (ProxyJump x%h).
_MOST_HOPS = 16
# A socket's path may have 108 bytes, on macOS 104. While ssh creates a socket, it appends 17 letters and a zero byte.
LONGEST_SOCKET = (104 if sys.platform == "darwin" else 108) - 18
_PLAIN = re.compile(r"[\w./+-]+")
# The longest number that names a socket in Client's folder has this many digits.
_DIGITS = 6


class Place(NamedTuple):
    """A server to reach. None: the settings decide. `jumps`: the jump hosts, written as in ProxyJump."""

    name: str
    user: str | None = None
    port: int | None = None
    jumps: str | None = None

    @property
    def words(self) -> list[str]:
        """The ssh options for this user, port and these jump hosts."""
        given = (("-l", self.user), ("-p", self.port), ("-J", self.jumps))
        return [word for option, value in given if value is not None for word in (option, str(value))]


@dataclass(frozen=True)
class Route:
    """How ssh reaches one server: its settings (`answer`), and the route to the last jump host before it."""

    place: Place
    answer: Answer
    before: Route | None

    def value(self, keyword: str) -> str:
        """Return the first value of a setting; empty if it is unset or `none`."""
        value = self.answer.get(keyword, ("",))[0]
        return "" if value == "none" else value

    @property
    def address(self) -> str:
        """The server's name or address, according to the settings."""
        return self.answer["hostname"][0]

    @property
    def port(self) -> int:
        """The server's port."""
        return int(self.answer["port"][0])

    @property
    def timeout_s(self) -> float:
        """How many seconds ssh waits for a connection."""
        seconds = self.value("connecttimeout")
        return float(seconds) if seconds.isdecimal() and int(seconds) else float(_DEFAULTS["ConnectTimeout"])

    @property
    def hops(self) -> tuple[Route, ...]:
        """The jump hosts, in the order of the connection."""
        return (*self.before.hops, self.before) if self.before else ()

    @property
    def endpoint(self) -> tuple[str, int, str]:
        """Address, port and jump hosts. Two hosts with the same endpoint are one machine."""
        through = ",".join(f"{hop.address}:{hop.port}" for hop in self.hops) or self.value("proxycommand")
        return self.address, self.port, through

    def fault_place(self, host: Host, jump: bool = False) -> FaultPlace:
        """Return what a fault of this connection needs to name it; `jump`: it is a jump host on the way to `host`."""
        user = self.answer["user"][0]
        target = f"{user}@{self.place.name}:{self.port}" if jump else host.name
        return FaultPlace(host.name, self.address, self.port, user, target, jump, self.value("hostkeyalias"))


class Client:
    """The user's `ssh` with the generated settings file, and a private folder for sockets. Close it after use."""

    def __init__(self, asks: bool = False) -> None:
        """`asks`: ssh may ask questions in this terminal.

        Raises UsageError if there is no ssh, no such settings file, or no folder for sockets.
        """
        program = shutil.which("ssh")
        if not program:
            raise UsageError("there is no `ssh` on this machine", _INSTALL)
        self._user = _user_file()
        self.program, self.folder = program, _folder()
        self._copies = {str(self.folder / "user"): str(self._user), str(self.folder / "system"): str(_SYSTEM)}
        self._file = self.folder / "config"
        try:
            self._file.write_text(self._text(asks))
        except OSError as failed:
            self.close()
            raise UsageError(
                f"ssh's settings, in {self.folder}: {failed}", "set TMPDIR to a folder with free space"
            ) from failed
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def line(self, place: Place, *options: str) -> list[str]:
        """Return the command line of `ssh` to a place with these options, which override the settings."""
        return [self.program, "-F", str(self._file), *options, "--", place.name]

    def routes(self, hosts: Iterable[Host]) -> dict[str, Route]:
        """Return the route to each host, by its name. Raises UsageError for invalid names and settings."""
        places = {host.name: Place(host.address, host.user, host.port, _jumps(host)) for host in hosts}
        answers, todo = dict[Place, Answer](), list(dict.fromkeys(places.values()))
        with ThreadPoolExecutor(_MOST_CALLS) as pool:
            for _ in range(_MOST_HOPS):
                answers.update(zip(todo, pool.map(self._ask, todo), strict=True))
                hops = [_hop(place, answers[place]) for place in todo]
                todo = [hop for hop in dict.fromkeys(hops) if hop and hop not in answers]
                if not todo:
                    break
            else:
                raise UsageError(f"{todo[0].name}: more than {_MOST_HOPS} jump hosts in a row", "see ProxyJump")
        routes: dict[Place, Route] = {}
        return {name: _route(place, answers, routes, ()) for name, place in places.items()}

    def users_socket(self, place: Place) -> str:
        """Return the ControlPath in the user's settings; empty if unset, or if they accept unknown host keys."""
        file = [] if self._user == _home_file() else ["-F", str(self._user)]
        code, out, _ = run_limited([self.program, *file, "-G", *place.words, "--", place.name])
        own = Route(place, _answer(out), None)
        strict = own.value("stricthostkeychecking") in ("true", "yes", "ask") and not own.value("knownhostscommand")
        trusting = (own.value(name) not in ("", "no", "false") for name in _TRUSTING)
        return own.value("controlpath") if code == 0 and strict and not any(trusting) else ""

    def with_original_paths(self, text: str) -> str:
        """Return ssh's output with the paths of our copies replaced by those of the original files."""
        for copy, file in self._copies.items():
            text = text.replace(copy, file)
        return text

    def _text(self, asks: bool) -> str:
        strict = {**_STRICT, "ServerAliveInterval": f"{max(1.0, framing.PULSE_S):.0f}"}
        strict["BatchMode"] = "no" if asks else "yes"
        usual = self._user == _home_file()
        if usual:
            # A link, so that ssh still checks the file's owner and that no other user may write to it.
            (self.folder / "user").symlink_to(self._user)
        else:
            # A copy, because ssh does not check the owner of a file given with `-F`.
            shutil.copyfile(self._user, self.folder / "user")
        if usual and os.access(_SYSTEM, os.R_OK):
            shutil.copyfile(_SYSTEM, self.folder / "system")
        # ssh ignores an Include of a file that does not exist.
        theirs = [f"Include {self.folder}/{name}\n" for name in ("user", "system")]
        return "Host *\n".join(["", _section(strict), *theirs, _section(_DEFAULTS)])

    def _ask(self, place: Place) -> Answer:
        """Return what `ssh -G` prints for a place. Raises UsageError with ssh's own words if ssh refuses a file."""
        _check(place)
        code, out, err = run_limited(self.line(place, "-G", *place.words))
        answer = _answer(out)
        if code == 0 and {"hostname", "user", "port"} <= answer.keys():
            return answer
        words = "it took too long or printed too much" if code is None else (err.strip() or f"code {code}")
        # ssh also warns about options that it does not support, and ignores them: they are not the reason.
        first = self.with_original_paths(
            next((line for line in words.splitlines() if "Unsupported" not in line), words)
        )
        if str(self._file) in first:
            version = run_limited([self.program, "-V"])[2].strip()
            raise UsageError(
                f"the `ssh` of this machine ({version}) is too old for Muster: {first.rpartition(': ')[2]}",
                f"install OpenSSH's client {OLDEST} or newer, first in the PATH",
            )
        source = f"its SSH settings ({self._user})" if os.environ.get(VARIABLE) else "its SSH settings"
        hint = f"`{typed_ssh()} -G {place.name}` shows the same error; correct the settings"
        raise UsageError(f"{place.name}: {source}: {first}", hint)


def home() -> Path:
    """Return the user's home from the user database, as OpenSSH does, not from $HOME. Raises UsageError."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise UsageError(
            f"uid {os.getuid()} has no user name here, and ssh needs one", "add it to /etc/passwd"
        ) from None


def path(text: str) -> Path:
    """Expand `~/` in a path that `ssh -G` printed: some versions of ssh expand it, others do not."""
    return home() / text[2:] if text.startswith("~/") else Path(text)


def closest_host(host: str) -> str:
    """Return the host in the user's settings whose name is most like `host`; empty if none is similar."""
    names = set()
    with suppress(OSError, UsageError):
        for line in _user_file().read_text(errors="replace").splitlines():
            words = line.replace("=", " ", 1).split()
            if words and words[0].lower() == "host":
                names |= {word for word in words[1:] if not set('*?!"') & set(word) and word != host}
    return near_match(host, names)


def run_limited(line: Sequence[str]) -> tuple[int | None, str, str]:
    """Run a command; return its exit code, output and errors. The code is None if it took too long or printed too much.

    Raises UsageError if there is no such program.
    """
    if not shutil.which(line[0]):
        raise UsageError(f"there is no `{line[0]}` on this machine", _INSTALL)
    with subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "LC_ALL": "C"},
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stderr
        clock = threading.Timer(_LONGEST_S, kill_group, (process.pid,))
        clock.daemon = True
        clock.start()
        try:
            # Reading one after the other is safe: ssh's errors about settings fit into the pipe; if not, the clock
            # ends the command.
            out = process.stdout.read(_MOST_BYTES + 1)
            err = process.stderr.read(_MOST_BYTES)
            if len(out) > _MOST_BYTES:
                kill_group(process.pid)
            process.wait()
        except BaseException:
            kill_group(process.pid)
            raise
        finally:
            clock.cancel()
    code = None if process.returncode == -signal.SIGKILL else process.returncode
    return code, out.decode(errors="surrogateescape"), err.decode(errors="replace")


def kill_group(process: int) -> None:
    """Kill a process that leads a session, and the processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _answer(out: str) -> Answer:
    settings: dict[str, list[str]] = {}
    for line in out.split("\n")[:-1]:
        keyword, _, value = line.partition(" ")
        settings.setdefault(keyword.lower(), []).append(value)
    return {keyword: tuple(lines) for keyword, lines in settings.items()}


def _section(values: dict[str, str]) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items())


def _home_file() -> Path:
    return home() / ".ssh/config"


def _user_file() -> Path:
    """Return the user's settings file. It need not exist, unless MUSTER_SSH_CONFIG names it. Raises UsageError."""
    path = os.environ.get(VARIABLE)
    if not path:
        return _home_file()
    file = Path(os.path.expanduser(path)).absolute()
    if not os.path.isfile(file):
        raise UsageError(f"{VARIABLE}={path}: there is no such file", "set it to an SSH config file, or unset it")
    return file


def _folder() -> Path:
    """Make a folder whose path is short enough for sockets, and needs no quotes in a settings file."""
    for base in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        # mkdtemp adds 8 letters to the prefix.
        longest = len(f"{base}/muster-/") + 8 + _DIGITS
        if _PLAIN.fullmatch(base) and longest <= LONGEST_SOCKET and os.access(base, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix="muster-", dir=base))
    raise UsageError(f"{tempfile.gettempdir()}: ssh's sockets cannot go there, and /tmp is not writable", "set TMPDIR")


def _check(place: Place) -> None:
    """Raise UsageError for a name that is not safe to give to ssh or a shell."""
    good = values.host(place.name) and (place.user is None or values.user(place.user))
    if not good or not all(map(values.destination, (place.jumps or "a").split(","))):
        shown = ", ".join(repr(word) for word in (place.name, place.user, place.jumps) if word is not None)
        raise UsageError(
            f"{shown}: not a valid name of a host, a user or a jump host", "letters, digits, dots and dashes only"
        )


def _jumps(host: Host) -> str | None:
    """Return a host's jump hosts in the form of ProxyJump, with brackets around IPv6 addresses; None without one."""
    hops = []
    for hop in () if host.gateway is None else host.gateway.split(","):
        if not hop:
            raise UsageError(f"{host.name}: a jump host without a name", 'gateway = "user@door:port"')
        destination = values.destination(hop)
        bare = destination and ":" in destination.host and "[" not in hop
        hops.append(hop.replace(destination.host, f"[{destination.host}]") if destination and bare else hop)
    return ",".join(hops) or None


def _hop(place: Place, answer: Answer) -> Place | None:
    """Return the last jump host before a place, or None.

    The jump hosts listed before it lead to it; if there are none, its own settings say how ssh reaches it.
    """
    own = Route(place, answer, None)
    tokens = {"%": "%", "h": own.address, "n": place.name, "p": str(own.port), "r": answer["user"][0]}
    jumps = re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), own.value("proxyjump"))
    jumps = jumps.replace("ssh://", "")
    if not jumps:
        return None
    others, _, last = jumps.rpartition(",")
    destination = values.destination(last)
    if destination is None:
        raise UsageError(
            f"{place.name}: its ProxyJump: {last!r} is not a host", f"`{typed_ssh()} -G {place.name}` shows it"
        )
    return Place(destination.host, destination.user, destination.port, others or None)


def _route(place: Place, answers: dict[Place, Answer], routes: dict[Place, Route], behind: tuple[Place, ...]) -> Route:
    if place in behind:
        circle = " -> ".join(hop.name for hop in (*behind, place))
        raise UsageError(
            f"{behind[0].name}: its jump hosts form a circle: {circle}",
            f"`ProxyJump none` in a section for {place.name}",
        )
    if place not in routes:
        hop = _hop(place, answers[place])
        before = _route(hop, answers, routes, (*behind, place)) if hop else None
        routes[place] = Route(place, answers[place], before)
    return routes[place]
