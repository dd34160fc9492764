"""A client of the ssh master, the `ssh` that holds a connection open (PROTOCOL.mux in OpenSSH's sources, version 4).

A command needs only a connection to the master's local socket and a few messages, not a process: the master gets the
ends of three pipes, and reports the exit code when the command has ended.
"""

from __future__ import annotations

import array
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_VERSION = 4
_HELLO, _SESSION, _ALIVE, _END, _DIAL = 1, 0x10000002, 0x10000004, 0x10000005, 0x10000008
_FORWARD, _UNFORWARD = 0x10000006, 0x10000007
_DONE, _EXIT, _IS_ALIVE, _OPENED = 0x80000001, 0x80000004, 0x80000005, 0x80000006
# Fields of a forwarding: the master listens on this machine; this port number marks an end as a socket path.
_LOCAL, _A_PATH = 1, 0xFFFFFFFE
_NO_ESCAPE = 0xFFFFFFFF
# No answer from a master is longer.
_MOST_MESSAGE = 1 << 18
_LOOK_S = 0.5


class Refused(Exception):
    """The master, or the host behind it, refused a request; the message is its own."""


class Control:
    """A client's connection to a master. Raises OSError or EOFError if it is gone, TimeoutError if it is silent."""

    def __init__(self, path: str, seconds: float) -> None:
        self._socket, self._request, self._lock = socket.socket(socket.AF_UNIX), 0, threading.Lock()
        try:
            self._socket.settimeout(seconds)
            self._socket.connect(path)
            self._send(struct.pack(">II", _HELLO, _VERSION))
            kind, body = self._receive()
            if kind != _HELLO or _number(body) != _VERSION:
                raise Refused(f"its protocol does not have version {_VERSION}")
        except BaseException:
            self._socket.close()
            raise

    def process(self) -> int:
        """Return the process ID of the master."""
        kind, body = self._ask(_ALIVE, b"")
        if kind != _IS_ALIVE:
            raise Refused(_words(body))
        return _number(body)

    def start(self, command: str, streams: tuple[int, int, int]) -> None:
        """Start a command with these descriptors for its input, output and errors. Raises Refused."""
        # No terminal, no X11, no agent forwarding, no subsystem, and no environment variables.
        wants = struct.pack(">IIIII", 0, 0, 0, 0, _NO_ESCAPE)
        self._open(_SESSION, _string("") + wants + _string("") + _string(command), streams)

    def dial(self, host: str, port: int, streams: tuple[int, int]) -> None:
        """Let the host connect to `host`:`port`, and attach two descriptors, one per direction. Raises Refused."""
        self._open(_DIAL, _string("") + _string(host) + struct.pack(">I", port), streams)

    def forward(self, here: str, remote: str, end: bool = False) -> None:
        """Make the master listen on the socket path `here` and forward it to a socket of the host; `end`: stop that.

        Raises Refused if the master cannot listen. Only a connection shows whether the host lets it through.
        """
        ends = b"".join(_string(path) + struct.pack(">I", _A_PATH) for path in (here, remote))
        answer, words = self._ask(_UNFORWARD if end else _FORWARD, struct.pack(">I", _LOCAL) + ends)
        if answer != _DONE:
            raise Refused(_words(words))

    def end(self) -> None:
        """Make the master close its connection and end."""
        self._ask(_END, b"")

    def code(self, seconds: float) -> int | None:
        """Wait up to `seconds` for the command's exit code; None if the master does not report one."""
        with self._lock, suppress(OSError, EOFError):
            self._socket.settimeout(seconds)
            while True:
                kind, body = self._receive()
                if kind == _EXIT:
                    return _number(body[4:])
        return None

    def is_connected(self) -> bool:
        """Whether the master is still connected. Only the local kernel is asked: nothing is sent."""
        with suppress(OSError, ValueError):
            come = select.poll()
            come.register(self._socket, select.POLLIN)
            return not come.poll(0) or self._socket.recv(1, socket.MSG_PEEK) != b""
        return False

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Disconnect from the master; a command started here loses its streams. A second call does nothing."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes another thread that waits for the exit code
        with self._lock:
            self._socket.close()

    def _open(self, kind: int, body: bytes, streams: tuple[int, ...]) -> None:
        answer, words = self._ask(kind, body, streams)
        if answer != _OPENED:
            raise Refused(_words(words))

    def _ask(self, kind: int, body: bytes, streams: tuple[int, ...] = ()) -> tuple[int, bytes]:
        """Send a request; return the kind of the answer, and what follows the request's number in it."""
        self._request += 1
        self._send(struct.pack(">II", kind, self._request) + body)
        for stream in streams:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [stream]))
            self._socket.sendmsg([b"\0"], [rights])
        answer, rest = self._receive()
        return answer, rest[4:]

    def _send(self, body: bytes) -> None:
        self._socket.sendall(_string(body))

    def _receive(self) -> tuple[int, bytes]:
        size = _number(self._exactly(4))
        if not 4 <= size <= _MOST_MESSAGE:
            raise EOFError
        body = self._exactly(size)
        return _number(body), body[4:]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


class _End:
    """One end of a pipe: one thread uses it, and other threads may close it."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        # A closed descriptor's number may be given to another file immediately, so it is only used under this lock.
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The descriptor; -1 if it is closed."""
        return -1 if self._descriptor is None else self._descriptor

    def close(self) -> None:
        """Close it. A second call does nothing."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _wait(self, event: int, until: float | None) -> None:
        """Wait for the event for a moment, at most until `until`. Raises TimeoutError if `until` is past."""
        left = _LOOK_S if until is None else min(_LOOK_S, until - time.monotonic())
        if left < 0:
            raise TimeoutError
        if (descriptor := self.fileno()) >= 0:
            waiting = select.poll()
            waiting.register(descriptor, event)
            waiting.poll(left * 1000)


class Writer(_End):
    """The end to write to."""

    def write(self, data: memoryview, until: float | None = None) -> int:
        """Write a part of the data; return how many bytes.

        Raises BrokenPipeError if this end is closed or the reader is gone, TimeoutError at `until`.
        """
        while True:
            with self._lock, suppress(BlockingIOError):
                if self._descriptor is None:
                    raise BrokenPipeError
                return os.write(self._descriptor, data)
            self._wait(select.POLLOUT, until)

    def write_all(self, data: bytes, until: float | None = None) -> None:
        """Write all of the data. Raises the same errors as `write`."""
        view = memoryview(data)
        while view:
            view = view[self.write(view, until) :]


class Reader(_End):
    """The end to read from."""

    def take(self, most: int) -> bytes | None:
        """Return the bytes that have come; empty at the end of the stream, None if nothing has come yet."""
        with self._lock, suppress(BlockingIOError):
            return b"" if self._descriptor is None else os.read(self._descriptor, most)
        return None

    def read(self, most: int, until: float | None = None) -> bytes:
        """Wait for bytes and return them; empty at the end of the stream. Raises TimeoutError at `until`."""
        while (data := self.take(most)) is None:
            self._wait(select.POLLIN, until)
        return data


class Channel:
    """A command on the host: `input` to write to, `out` and `err` to read from."""

    def __init__(self, path: str, command: str, seconds: float) -> None:
        """Start the command. Raises Refused, OSError, EOFError; TimeoutError if it does not start in `seconds`."""
        with _Pipes(3) as pipes:
            streams = pipes.reading[0], pipes.writing[1], pipes.writing[2]
            self._control = _begun(path, seconds, lambda control: control.start(command, streams))
            self.input = Writer(pipes.take(pipes.writing[0]))
            self.out, self.err = (Reader(pipes.take(end)) for end in pipes.reading[1:])

    def fileno(self) -> int:
        """A descriptor that becomes readable when the command has ended: then `code` does not wait."""
        return self._control.fileno()

    def code(self, seconds: float) -> int | None:
        """Return its exit code; None if the master reports none within `seconds`."""
        return self._control.code(seconds)

    def close(self) -> None:
        """End the command: it loses its streams. A second call does nothing."""
        self._control.close()
        for end in (self.input, self.out, self.err):
            end.close()


class Tunnel:
    """A connection that the host makes to a port. It has the methods of a socket that `select` and a relay need."""

    def __init__(self, path: str, host: str, port: int, seconds: float) -> None:
        """Raises Refused if the host does not connect, OSError, EOFError, TimeoutError."""
        with _Pipes(2) as pipes:
            streams = pipes.reading[0], pipes.writing[1]
            self._control = _begun(path, seconds, lambda control: control.dial(host, port, streams))
            self._input, self._out = Writer(pipes.take(pipes.writing[0])), Reader(pipes.take(pipes.reading[1]))

    def fileno(self) -> int:
        """A descriptor that is readable when `recv` has data, and at the end."""
        return self._out.fileno()

    def recv(self, most: int) -> bytes:
        """Wait for bytes and return them; empty at the end."""
        return self._out.read(most)

    def sendall(self, data: bytes) -> None:
        """Send all of the data. Raises BrokenPipeError if the other side is gone."""
        self._input.write_all(data)

    def shutdown(self, how: int) -> None:
        """Tell the other side that no more data comes."""
        if how != socket.SHUT_RD:
            self._input.close()

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        self._control.close()
        self._input.close()
        self._out.close()


def _begun(path: str, seconds: float, begin: Callable[[Control], None]) -> Control:
    """Connect to the master at `path` and call `begin` with the connection; close it if that fails."""
    control = Control(path, seconds)
    try:
        begin(control)
    except BaseException:
        control.close()
        raise
    return control


class _Pipes:
    """Some new pipes. On exit, closes every end that the caller has not taken."""

    def __init__(self, number: int) -> None:
        self.reading, self.writing = list[int](), list[int]()
        for _ in range(number):
            reading, writing = os.pipe()
            self.reading.append(reading)
            self.writing.append(writing)
        self._rest = {*self.reading, *self.writing}

    def __enter__(self) -> _Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._rest:
            os.close(end)

    def take(self, end: int) -> int:
        """Give an end of a pipe to the caller, who must close it."""
        self._rest.remove(end)
        return end


def _string(text: str | bytes) -> bytes:
    # A word of a command line may be invalid UTF-8: it reaches the host byte for byte as it was typed.
    data = os.fsencode(text) if isinstance(text, str) else text
    return struct.pack(">I", len(data)) + data


def _number(data: bytes) -> int:
    if len(data) < 4:
        raise EOFError
    return int.from_bytes(data[:4], "big")


def _words(body: bytes) -> str:
    """Return the reason in a refusal."""
    return body[4:].decode(errors="replace")
