"""A connection that the user's own `ssh` holds open: a master with its socket (ControlPath in ssh_config(5)).

It serves where paramiko cannot log in: a second factor, a key on a token, Kerberos. `Master` and `MasterChannel` have
the part of paramiko's Transport and Channel that this package uses; each channel is a process of `ssh` that talks to
the master. No such process may connect by itself: it reads no settings, and its ProxyCommand fails.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import stat
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any

from paramiko import pipe
from paramiko.buffered_pipe import BufferedPipe, PipeTimeout
from paramiko.common import OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED, OPEN_FAILED_CONNECT_FAILED
from paramiko.ssh_exception import ChannelException, SSHException

_CHECK_S, _REFUSED_S = 5.0, 0.15
_PIECE = 1 << 16
# As much as we take of a stream before somebody reads it.
_MOST_WAITING = 16 << 20
# What ssh ends with if the command ended so, or the connection.
_SSH_FAILED = 255


def alive(program: str, path: str) -> bool:
    """Whether a master of this user's answers at the socket. It may have lost its host all the same."""
    try:
        status = os.lstat(path)
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
            return False
        line = [*_client(program, path), "-O", "check", "muster"]
        return subprocess.run(line, capture_output=True, timeout=_CHECK_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def end(program: str, path: str) -> None:
    """Close a master's connection."""
    with suppress(OSError, subprocess.TimeoutExpired):
        line = [*_client(program, path), "-O", "exit", "muster"]
        subprocess.run(line, capture_output=True, timeout=_CHECK_S, check=False)


class Pulse:
    """What the master's connection last did; stands where paramiko's transport has its socket."""

    def __init__(self) -> None:
        self.at = time.monotonic()
        self.channels: set[MasterChannel] = set()
        self.login_by: float | None = None
        self.gather_s = 0.0

    def shutdown(self, how: int) -> None:
        """Do nothing: the connection belongs to the user, and stays."""

    def close(self) -> None:
        """Do nothing, as `shutdown`."""


class Master:
    """Channels over a master's socket. Closing it ends its channels, not the user's connection."""

    def __init__(self, program: str, path: str) -> None:
        self._program, self._path = program, path
        self.sock, self.active = Pulse(), True
        self._echo: MasterChannel | None = None
        self._lock = threading.Lock()

    def is_active(self) -> bool:
        """Whether it is open here."""
        return self.active

    def is_authenticated(self) -> bool:
        """The user's ssh has logged in."""
        return True

    def open_session(self) -> MasterChannel:
        """A channel for one command. Raises SSHException if this is closed."""
        return self._open()

    def open_channel(
        self, kind: str, to: tuple[str, int], source: tuple[str, int], timeout: float | None = None
    ) -> MasterChannel:
        """A connection from the host to another address. Raises SSHException, ChannelException if it is refused soon.

        ssh does not say that a connection is open; one that is refused later ends without a byte.
        """
        if kind != "direct-tcpip":
            raise SSHException(f"no {kind} over the connection that ssh holds")
        channel, host = self._open(), f"[{to[0]}]" if ":" in to[0] else to[0]
        channel.start(["-W", f"{host}:{to[1]}", "muster"])
        if channel.over(_REFUSED_S) and not channel.recv_ready():
            words = channel.recv_stderr(_PIECE).decode(errors="replace").strip()
            channel.close()
            code = OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED if "prohibited" in words else OPEN_FAILED_CONNECT_FAILED
            raise ChannelException(code, words or "refused")
        return channel

    def global_request(self, kind: str, wait: bool = True) -> None:
        """Ask the host for a byte. Raises EOFError if the connection is gone, SSHException if none comes."""
        if self._echo is None:
            self._echo = self.open_session()
            self._echo.exec_command("exec cat")
        self._echo.settimeout(30.0)
        try:
            self._echo.sendall(b".")
            got = self._echo.recv(1)
        except OSError as silent:
            raise SSHException(str(silent)) from silent
        if not got:
            self._echo = None
            if not self.answers():
                raise EOFError
            # The server has no room for one more session (MaxSessions): the master's own ServerAlive decides.
            self.sock.at = time.monotonic()

    def get_exception(self) -> None:
        """Return None, where paramiko's transport has an exception: ssh does not tell why the connection ended."""

    def answers(self) -> bool:
        """Whether the master is still there."""
        return alive(self._program, self._path)

    def close(self) -> None:
        """End all channels."""
        self.active = False
        with self._lock:
            channels = [*self.sock.channels, *([self._echo] if self._echo else [])]
        for channel in channels:
            channel.close()

    def _open(self) -> MasterChannel:
        if not self.active:
            raise SSHException("it is closed")
        return MasterChannel(self, _client(self._program, self._path))


class MasterChannel:
    """One command, or one tunnel, over a master connection."""

    def __init__(self, master: Master, client: list[str]) -> None:
        self._master, self._client = master, client
        self.in_buffer, self.in_stderr_buffer = BufferedPipe(), BufferedPipe()
        self.in_stream = self.in_stderr_stream = b""
        self.closed = self.eof_received = False
        self._process: subprocess.Popen[bytes] | None = None
        self._timeout: float | None = None
        self._ready: Any = None
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._code = -1

    def exec_command(self, command: str) -> None:
        """Begin a command. Raises OSError if there is no ssh any more."""
        self.start(["-T", "muster", command])

    def start(self, words: list[str]) -> None:
        """Begin what these words ask ssh for."""
        line, to_us = [*self._client, *words], subprocess.PIPE
        # In a session of its own: a Ctrl-C here is ours to answer.
        self._process = subprocess.Popen(
            line, bufsize=0, stdin=to_us, stdout=to_us, stderr=to_us, start_new_session=True
        )
        assert self._process.stdin
        os.set_blocking(self._process.stdin.fileno(), False)
        self._master.sock.channels.add(self)
        errors = threading.Thread(target=self._read_errors, daemon=True, name="muster-ssh-errors")
        errors.start()
        threading.Thread(target=self._read, args=(errors,), daemon=True, name="muster-ssh").start()

    def fileno(self) -> int:
        """A descriptor to wait on: readable while there is something to read, and at the end."""
        if self._ready is None:
            self._ready = pipe.make_pipe()
            out, err = pipe.make_or_pipe(self._ready)
            self.in_buffer.set_event(out)
            self.in_stderr_buffer.set_event(err)
        return int(self._ready.fileno())

    def settimeout(self, seconds: float | None) -> None:
        """How long recv and send wait; None: forever."""
        self._timeout = seconds

    def recv_ready(self) -> bool:
        """Whether there is output."""
        return bool(self.in_buffer.read_ready())

    def recv_stderr_ready(self) -> bool:
        """Whether there is output on standard error."""
        return bool(self.in_stderr_buffer.read_ready())

    def recv(self, most: int) -> bytes:
        """The next output; none at the end. Raises TimeoutError."""
        return self._take(self.in_buffer, most)

    def recv_stderr(self, most: int) -> bytes:
        """The next of standard error; none at the end. Raises TimeoutError."""
        return self._take(self.in_stderr_buffer, most)

    def send(self, data: bytes) -> int:
        """Write a part of the input; how much was written. Raises TimeoutError, OSError if the reader has gone."""
        stdin = self._stdin()
        with selectors.DefaultSelector() as writable:
            writable.register(stdin, selectors.EVENT_WRITE)
            until = None if self._timeout is None else time.monotonic() + self._timeout
            while not self.closed:
                if writable.select(0.5 if until is None else max(0.0, min(0.5, until - time.monotonic()))):
                    with suppress(BlockingIOError):
                        return os.write(stdin, data[:_PIECE])
                if until is not None and time.monotonic() > until:
                    raise TimeoutError
        return 0

    def sendall(self, data: bytes) -> None:
        """Write all of it. Raises as `send` does."""
        while data:
            if not (sent := self.send(data)):
                raise OSError("the channel is closed")
            data = data[sent:]

    def shutdown_write(self) -> None:
        """End the input."""
        if self._process and self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()

    def shutdown(self, how: int) -> None:
        """End the input, as a socket's method does. Output ends when the other side ends it."""
        if how != socket.SHUT_RD:
            self.shutdown_write()

    def over(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        return self._over.wait(seconds)

    def exit_status_ready(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    def recv_exit_status(self) -> int:
        """The command's exit code, once it has ended; -1 if the connection ended first."""
        self._over.wait()
        return self._code

    def close(self) -> None:
        """End it. A second call does nothing."""
        self.closed = True
        self._master.sock.channels.discard(self)
        if self._process and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
        self._finish()

    def _stdin(self) -> int:
        if self.closed or not self._process or not self._process.stdin or self._process.stdin.closed:
            raise OSError("the channel is closed")
        return self._process.stdin.fileno()

    def _take(self, buffer: BufferedPipe, most: int) -> bytes:
        try:
            return bytes(buffer.read(most, self._timeout))
        except PipeTimeout:
            raise TimeoutError from None

    def _read_errors(self) -> None:
        assert self._process
        self._drain(self._process.stderr, self.in_stderr_buffer)

    def _read(self, errors: threading.Thread) -> None:
        assert self._process
        self._drain(self._process.stdout, self.in_buffer)
        errors.join()
        code = self._process.wait()
        lost = code < 0 or (code == _SSH_FAILED and not self._master.answers())
        self._code = -1 if lost else code
        self.eof_received = True
        self._over.set()
        self._finish()

    def _finish(self) -> None:
        """No more input or output. Without a reader and a writer, the descriptors are closed too."""
        self.shutdown_write()
        self.in_buffer.close()
        self.in_stderr_buffer.close()
        with self._lock:
            if self._ready and self.closed and self._over.is_set():
                self._ready.close()
                self._ready = None

    def _drain(self, stream: Any, buffer: BufferedPipe) -> None:
        """Everything of a stream into a buffer, no faster than somebody reads it."""
        with stream:
            while not self.closed and (piece := os.read(stream.fileno(), _PIECE)):
                self._master.sock.at = time.monotonic()
                buffer.feed(piece)
                while len(buffer) > _MOST_WAITING and not self.closed:
                    time.sleep(0.01)


def _client(program: str, path: str) -> list[str]:
    """`ssh` as a client of the master at `path`, and of nothing else."""
    # Without a master it would connect itself: by a command that fails.
    return [
        program,
        "-F",
        "none",
        "-S",
        path,
        "-o",
        "ControlMaster=no",
        "-o",
        "ProxyCommand=false",
        "-o",
        "LogLevel=ERROR",
    ]
