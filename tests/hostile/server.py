"""A hostile host: an SSH server on the loopback address that answers each command as a test tells it to.

`Server(answers)` gets a table that maps a command to an `Answer`, or to a function from `Asked` to an `Answer`. A key
is the name in a command's script (`send-run-folder`, `follow`, `start`, ...: the word after `sh -c SCRIPT`), any text,
more than one word, that the command contains, or "" for all commands. The first key that matches counts. Requests to
Docker's API (`docker system dial-stdio`) go to `engine`, which is honest. Any other command really runs, in the
server's own home, with `bin` first on its PATH. `bin` has a `docker` without an engine until a test writes another.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import paramiko

from tests.hostile.engine import FakeEngine, described, of_home

NO_ENGINE = "#!/bin/sh\necho 'Cannot connect to the Docker daemon. Is the docker daemon running?' >&2; exit 1\n"
# An engine with at most one container, in a host's home: `engine/line` is its line, `engine/console` its console.
ENGINE = """#!/bin/sh
line=$HOME/engine/line
case $1 in
ps) [ ! -f "$line" ] || echo 0123456789ab ;;
inspect)
    [ -f "$line" ] || { echo "Error: No such object" >&2; exit 1; }
    case $3 in container*) cat "$line" ;; *) sed 's/^container //' "$line" ;; esac ;;
logs) cat "$HOME/engine/console" 2>/dev/null ;;
rm) rm -f "$line" ;;
esac
"""
LOSES = (OSError, EOFError, paramiko.SSHException)


@dataclass(frozen=True)
class Asked:
    """One command: its words as sent, without Muster's wrapper; `input` reads its standard input to the end."""

    argv: tuple[str, ...]
    input: Callable[[], bytes]

    @property
    def text(self) -> str:
        """All words in one line."""
        return " ".join(self.argv)


@dataclass(frozen=True)
class Answer:
    """What the server sends back: both streams, whole or in pieces (a generator sets the pace), then the exit code.

    `marked`: each stream begins with the marker, as a shell would print it; without it Muster sees no shell.
    `code` None: the command never ends.
    """

    out: bytes | Iterable[bytes] = b""
    err: bytes | Iterable[bytes] = b""
    code: int | None = 0
    marked: bool = True


Greeting = bytes | Callable[[], Iterable[bytes]]
Answers = Mapping[str, Answer | bytes | Callable[[Asked], Answer]]


class Server:
    """An SSH server on `port`. Real commands see `home` and `bin`; `asked` has all commands so far.

    `banner`: what the server prints before login. `greeting`: raw bytes, or pieces of them, instead of any SSH.
    `begins`: whether the server confirms that a command has begun.
    """

    def __init__(self, folder: Path, answers: Answers, banner: str = "", greeting: Greeting = b"") -> None:
        self.answers, self.banner, self.greeting, self.begins = answers, banner, greeting, True
        self.home, self.bin = folder / "home", folder / "bin"
        self.home.mkdir(parents=True)
        self.bin.mkdir()
        self.program("docker", NO_ENGINE)
        self.key = paramiko.ECDSAKey.generate()
        self.asked: list[Asked] = []
        self.engine = FakeEngine(lambda: of_home(self.home))
        self.sent = 0
        self.over = threading.Event()
        self._transports: list[paramiko.Transport] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True, name="hostile-server").start()

    def program(self, name: str, text: str) -> None:
        """Put a program on the PATH for real commands."""
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def runs(self, line: str) -> None:
        """Let the host have this container (a line from `container`); the change is atomic for readers."""
        (self.home / "engine").mkdir(exist_ok=True)
        if not (self.home / "engine/line").exists():
            self.program("docker", ENGINE)
        aside = self.home / "engine/.line"
        aside.write_text(f"{line}\n")
        aside.replace(self.home / "engine/line")

    def known(self) -> str:
        """The server's line for a known_hosts file."""
        return f"[127.0.0.1]:{self.port} {self.key.get_name()} {self.key.get_base64()}\n"

    def close(self) -> None:
        """Stop the server and close its connections."""
        self.over.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for transport in self._transports:
            transport.close()

    def _serve(self) -> None:
        while not self.over.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self.greeting:
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()
                continue
            with suppress(*LOSES):
                transport = _Transport(connection)
                self._transports.append(transport)
                transport.add_server_key(self.key)
                transport.start_server(server=_Interface(self), event=threading.Event())

    def _greet(self, connection: socket.socket) -> None:
        with suppress(OSError):
            for piece in (self.greeting,) if isinstance(self.greeting, bytes) else self.greeting():
                if self.over.is_set():
                    return
                connection.sendall(piece)

    def handle(self, channel: paramiko.Channel, command: str) -> None:
        """Answer one command."""
        channel.transport.wait_for_reply(channel)
        marker, argv = _unwrapped(command)
        asked = Asked(argv, lambda: b"".join(iter(lambda: channel.recv(1 << 16), b"")))
        self.asked.append(asked)
        answer = self._answer(asked)
        with suppress(*LOSES):
            if answer is None and argv == ("docker", "system", "dial-stdio"):
                channel.sendall(f"{marker}\n".encode())
                self.engine.serve(channel.recv, channel.sendall)
                channel.close()
            elif answer is None:
                self._really(channel, marker, argv)
            if answer is None:
                return
            begin = f"{marker}\n".encode() if answer.marked else b""
            other = threading.Thread(target=self._send, args=(channel.sendall_stderr, begin, answer.err), daemon=True)
            other.start()
            self._send(channel.sendall, begin, answer.out)
            other.join()
            if answer.code is not None:
                channel.send_exit_status(answer.code)
                channel.close()

    def _answer(self, asked: Asked) -> Answer | None:
        for key, answer in self.answers.items():
            if key in asked.argv or (not key.isidentifier() and key in asked.text):
                made = answer(asked) if callable(answer) else answer
                return Answer(made) if isinstance(made, bytes) else made
        return None

    def _send(self, send: Callable[[bytes], None], begin: bytes, pieces: bytes | Iterable[bytes]) -> None:
        with suppress(*LOSES):
            send(begin)
            for piece in (pieces,) if isinstance(pieces, bytes) else pieces:
                send(piece)
                self.sent += len(piece)
                if self.over.is_set():
                    return

    def _really(self, channel: paramiko.Channel, marker: str, argv: tuple[str, ...]) -> None:
        environment = {**os.environ, "HOME": str(self.home), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=self.home) as process:

            def feed() -> None:
                with suppress(*LOSES):
                    while piece := channel.recv(1 << 16):
                        process.stdin.write(piece)
                        process.stdin.flush()
                with suppress(OSError):
                    process.stdin.close()

            begin = f"{marker}\n".encode()
            errors = iter(lambda: process.stderr.read1(1 << 16), b"")
            threads = [
                threading.Thread(target=feed, daemon=True),
                threading.Thread(target=self._send, args=(channel.sendall_stderr, begin, errors), daemon=True),
            ]
            for thread in threads:
                thread.start()
            self._send(channel.sendall, begin, iter(lambda: process.stdout.read1(1 << 16), b""))
            threads[1].join()
            if channel.closed:
                process.kill()
            channel.send_exit_status(process.wait() % 256)
            channel.close()


class _Transport(paramiko.Transport):
    """Tracks when a command's request has been confirmed; the server may send it no data before that."""

    def __init__(self, sock: socket.socket) -> None:
        self._answered, self._changed = set[int](), threading.Condition()
        super().__init__(sock)

    def _send_user_message(self, data: paramiko.Message) -> None:
        super()._send_user_message(data)
        message = data.asbytes()
        if message[0] == paramiko.common.MSG_CHANNEL_SUCCESS:
            with self._changed:
                self._answered.add(int.from_bytes(message[1:5], "big"))
                self._changed.notify_all()

    def wait_for_reply(self, channel: paramiko.Channel) -> None:
        """Wait until the client has been told that its command has begun."""
        with self._changed:
            self._changed.wait_for(lambda: channel.remote_chanid in self._answered, 30)


class _Interface(paramiko.ServerInterface):
    """Accepts every key."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def get_banner(self) -> tuple[str | None, str]:
        return self._server.banner or None, "en-US"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if not self._server.begins:
            self._server.over.wait(30)
        words = (channel, command.decode())
        threading.Thread(target=self._server.handle, args=words, daemon=True, name="hostile-command").start()
        return True


def _unwrapped(command: str) -> tuple[str, tuple[str, ...]]:
    """The marker and the words in `sh -c SCRIPT MARKER WORDS...`, which `wrapped` in ssh/command.py encodes."""
    encoded = shlex.split(command)[-1]
    text = subprocess.run(["printf", "%b", encoded], capture_output=True, text=True, check=True).stdout
    words = shlex.split(text)
    at = next(place for place, word in enumerate(words) if word.startswith("muster-") and place > 2)
    return words[at], tuple(words[at + 1 :])


def look(*lines: str, runs: Iterable[str] = (), containers: Iterable[str] = ()) -> bytes:
    """What a healthy host answers to a look; `lines` come first, and the first line with a given word counts."""
    address = {"ifname": "eth0", "addr_info": [{"scope": "global", "local": "10.9.8.7", "prefixlen": 24}]}
    rows = [
        *lines,
        f"time {time.time():.2f}",
        "home /home/u",
        "ids 1001 1001",
        "ssh 10.9.8.1 50000 10.9.8.7 22",
        "arch x86_64",
        "cores 8",
        "memory 16000000",
        "room 100000000",
        f"addresses {json.dumps([address])}",
        f"engine {json.dumps({'Server': {'Version': '27.3.1'}})}",
        *(f"run {name}" for name in runs),
        "free 100000000",
        *containers,
    ]
    return "".join(f"{row}\n" for row in rows).encode()


def container(
    run: str, node: str = "evil", status: str = "running", code: int = 0, home: object = "/home/u", **labels: str
) -> str:
    """A run's container as the line that `docker inspect` is asked for; `labels` without the `muster.` prefix.

    `home`: the user's home on that host; the run folder is below it.
    """
    own = {"run": run, "node": node, "place": "0", "nodes": "1", "port": "29500", "command": "train.py", **labels}
    state = {"Status": status, "ExitCode": code, "StartedAt": "2026-11-21T00:00:00.0Z"}
    names = {f"muster.{name}": text for name, text in own.items()}
    return f"container {json.dumps(described(f'/muster-{run}', names, state, f'{home}/.muster/runs/{run}'))}"


def drip(piece: bytes, every_s: float, over: threading.Event) -> Iterator[bytes]:
    """Yield `piece` again and again, with a pause before each, until `over` is set."""
    while not over.wait(every_s):
        yield piece


def flood(piece: bytes, total: int) -> Iterator[bytes]:
    """Yield `piece` until `total` bytes have been sent."""
    for _ in range(0, total, len(piece)):
        yield piece
