"""The protocol that an `ssh` speaks which holds a connection open (PROTOCOL.mux in OpenSSH's sources, version 4).

A command costs a connection to a local socket and a few messages, not a process: the master gets the ends of three
pipes, and says at the end with which code the command ended.
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
# Of a forward: it begins on this machine, and both its ends are paths of sockets.
_LOCAL, _A_PATH = 1, 0xFFFFFFFE
_NO_ESCAPE = 0xFFFFFFFF
# No answer of a master is longer.
_MOST_MESSAGE = 1 << 18
_LOOK_S = 0.5


class Refused(Exception):
    """The master, or the host behind it, does not do what was asked: in its words."""


class Control:
    """One connection to a master. Raises OSError or EOFError if the master is gone, TimeoutError if it is silent."""

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
        """The number of the master's process."""
        kind, body = self._ask(_ALIVE, b"")
        if kind != _IS_ALIVE:
            raise Refused(_words(body))
        return _number(body)

    def start(self, command: str, streams: tuple[int, int, int]) -> None:
        """Begin a command with these descriptors for its input, output and errors. Raises Refused."""
        # Neither a terminal, nor X11, nor the agent, nor a subsystem; no variables of ours.
        wants = struct.pack(">IIIII", 0, 0, 0, 0, _NO_ESCAPE)
        self._open(_SESSION, _string("") + wants + _string("") + _string(command), streams)

    def dial(self, host: str, port: int, streams: tuple[int, int]) -> None:
        """Connect two descriptors, one for each direction, with a port as the host reaches it. Raises Refused."""
        self._open(_DIAL, _string("") + _string(host) + struct.pack(">I", port), streams)

    def forward(self, here: str, remote: str, end: bool = False) -> None:
        """Let the master listen at a path here, for connections to a socket on the host; `end`: no longer.

        Raises Refused if it cannot listen. Whether the host lets it connect shows each connection.
        """
        ends = b"".join(_string(path) + struct.pack(">I", _A_PATH) for path in (here, remote))
        answer, words = self._ask(_UNFORWARD if end else _FORWARD, struct.pack(">I", _LOCAL) + ends)
        if answer != _DONE:
            raise Refused(_words(words))

    def end(self) -> None:
        """Let the master close its connection and end."""
        self._ask(_END, b"")

    def code(self, seconds: float) -> int | None:
        """The code with which the command ended; None if the master does not say."""
        with self._lock, suppress(OSError, EOFError):
            self._socket.settimeout(seconds)
            while True:
                kind, body = self._receive()
                if kind == _EXIT:
                    return _number(body[4:])
        return None

    def stands(self) -> bool:
        """Whether the master is still there, as far as the kernel knows. It sends nothing by itself."""
        with suppress(OSError, ValueError):
            come = select.poll()
            come.register(self._socket, select.POLLIN)
            return not come.poll(0) or self._socket.recv(1, socket.MSG_PEEK) != b""
        return False

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Leave the master. What it runs for this connection loses its streams. A second call does nothing."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # for another thread, which waits for the code
        with self._lock:
            self._socket.close()

    def _open(self, kind: int, body: bytes, streams: tuple[int, ...]) -> None:
        answer, words = self._ask(kind, body, streams)
        if answer != _OPENED:
            raise Refused(_words(words))

    def _ask(self, kind: int, body: bytes, streams: tuple[int, ...] = ()) -> tuple[int, bytes]:
        """The kind of the answer, and what stands behind the request's number in it."""
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
    """One end of a pipe, for one thread that uses it and others that may close it."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        # A number that is closed may be another file's at once: it is used under this lock alone.
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
        """Wait for a moment, at most to `until`. Raises TimeoutError if that is over."""
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
        """Write a part of it; how much. Raises BrokenPipeError if nobody reads any more, TimeoutError at `until`."""
        while True:
            with self._lock, suppress(BlockingIOError):
                if self._descriptor is None:
                    raise BrokenPipeError
                return os.write(self._descriptor, data)
            self._wait(select.POLLOUT, until)

    def write_all(self, data: bytes, until: float | None = None) -> None:
        """Write all of it. Raises as `write` does."""
        view = memoryview(data)
        while view:
            view = view[self.write(view, until) :]


class Reader(_End):
    """The end to read from."""

    def take(self, most: int) -> bytes | None:
        """What has come; nothing at the end, None if nothing has come yet."""
        with self._lock, suppress(BlockingIOError):
            return b"" if self._descriptor is None else os.read(self._descriptor, most)
        return None

    def read(self, most: int, until: float | None = None) -> bytes:
        """What comes next; nothing at the end. Raises TimeoutError at `until`."""
        while (data := self.take(most)) is None:
            self._wait(select.POLLIN, until)
        return data


class Channel:
    """A command on the host: `input` to write to, `out` and `err` to read from."""

    def __init__(self, path: str, command: str, seconds: float) -> None:
        """Raises Refused, OSError, EOFError; TimeoutError if it has not begun within `seconds`."""
        with _Pipes(3) as pipes:
            streams = pipes.reading[0], pipes.writing[1], pipes.writing[2]
            self._control = _begun(path, seconds, lambda control: control.start(command, streams))
            self.input = Writer(pipes.take(pipes.writing[0]))
            self.out, self.err = (Reader(pipes.take(end)) for end in pipes.reading[1:])

    def fileno(self) -> int:
        """A descriptor that is readable when the command is over: then `code` does not wait."""
        return self._control.fileno()

    def code(self, seconds: float) -> int | None:
        """Its exit code once it has ended; None if nobody says one in this time."""
        return self._control.code(seconds)

    def close(self) -> None:
        """End it. A second call does nothing."""
        self._control.close()
        for end in (self.input, self.out, self.err):
            end.close()


class Tunnel:
    """A connection to a port as the host reaches it. It has the part of a socket that `select` and a relay need."""

    def __init__(self, path: str, host: str, port: int, seconds: float) -> None:
        """Raises Refused if the host does not connect, OSError, EOFError, TimeoutError."""
        with _Pipes(2) as pipes:
            streams = pipes.reading[0], pipes.writing[1]
            self._control = _begun(path, seconds, lambda control: control.dial(host, port, streams))
            self._input, self._out = Writer(pipes.take(pipes.writing[0])), Reader(pipes.take(pipes.reading[1]))

    def fileno(self) -> int:
        """A descriptor that is readable when `recv` has something, and at the end."""
        return self._out.fileno()

    def recv(self, most: int) -> bytes:
        """What comes next; nothing at the end."""
        return self._out.read(most)

    def sendall(self, data: bytes) -> None:
        """Send all of it. Raises BrokenPipeError if the other side is gone."""
        self._input.write_all(data)

    def shutdown(self, how: int) -> None:
        """Tell the other side that no more comes."""
        if how != socket.SHUT_RD:
            self._input.close()

    def close(self) -> None:
        """End it. A second call does nothing."""
        self._control.close()
        self._input.close()
        self._out.close()


def _begun(path: str, seconds: float, begin: Callable[[Control], None]) -> Control:
    """A connection to a master on which something has begun."""
    control = Control(path, seconds)
    try:
        begin(control)
    except BaseException:
        control.close()
        raise
    return control


class _Pipes:
    """Pipes of which an end that nobody took is closed."""

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
        """An end of a pipe, for somebody who closes it."""
        self._rest.remove(end)
        return end


def _string(text: str | bytes) -> bytes:
    # A word of a command line may be no UTF-8, and comes to the host as it was typed.
    data = os.fsencode(text) if isinstance(text, str) else text
    return struct.pack(">I", len(data)) + data


def _number(data: bytes) -> int:
    if len(data) < 4:
        raise EOFError
    return int.from_bytes(data[:4], "big")


def _words(body: bytes) -> str:
    """The reason in a refusal."""
    return body[4:].decode(errors="replace")
