"""HTTP with an untrusted engine: the size, the frames and the time of its answers are limited.

This uses `http.client` over a connection that the caller opened: a local socket, a socket that `ssh` forwards, or a
program that carries bytes (`docker system dial-stdio`). Docker's SDK has no limits, and takes 0.4 s to import.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..core.text import amount, in_seconds
from ..door import framing
from ..door.stream import Pipe

MOST_ANSWER, CALL_S, BEGIN_S = framing.MOST_ANSWER, 20.0, 60.0
_PIECE = 1 << 16
_KINDS, _HEAD = (0, 1, 2), 8
# Headers that ask for a stream in both directions.
UPGRADE = {"Connection": "Upgrade", "Upgrade": "tcp"}
OUT, ERR = 1, 2
# Both have the methods of a socket that are needed here.
Connection = socket.socket | Pipe


class Excess(Exception):
    """An engine sent more than Muster reads, or something that no engine sends; the message says which."""


# The exceptions of a lost connection, or of one that carries nonsense.
LOST = (OSError, EOFError, http.client.HTTPException, Excess)


class Answer(NamedTuple):
    """The status and the whole body of an answer."""

    status: int
    body: bytes


class Wire:
    """One connection to an engine, which answers one request after another.

    Raises OSError (TimeoutError: the engine is silent or too slow), http.client.HTTPException if the engine closes the
    connection or does not send HTTP, and Excess.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection, self._source = connection, _Source(connection)
        self._http = _Http(self._source)
        self.used = False

    def ask(self, method: str, path: str, body: bytes | None = None, seconds: float = CALL_S) -> Answer:
        """Send a request, and read the whole answer."""
        answer = self._begin(method, path, body, seconds)
        pieces, size = list[bytes](), 0
        while piece := answer.read(_PIECE):
            pieces.append(piece)
            if (size := size + len(piece)) > MOST_ANSWER:
                raise Excess(f"more than {amount(MOST_ANSWER)}")
        self.used = True
        return Answer(answer.status, b"".join(pieces))

    def open(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        follow: bool = False,
        headers: dict[str, str] | None = None,
    ) -> Stream:
        """Send a request, and return the answer as a stream of any length.

        It must arrive steadily, unless it is to `follow` something.
        """
        answer = self._begin(method, path, body, BEGIN_S, headers)
        self._source.allow(None, None, paced=not follow)
        return Stream(self._source, answer)

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        self.connection.close()

    def _begin(
        self, method: str, path: str, body: bytes | None, seconds: float, headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        self._source.allow(MOST_ANSWER + _PIECE, time.monotonic() + seconds)
        self.connection.settimeout(seconds)
        kind = {} if body is None else {"Content-Type": "application/json"}
        self._http.request(method, path, body=body, headers={**kind, **(headers or {})})
        try:
            return self._http.getresponse()
        except ValueError as odd:
            raise Excess(f"no HTTP: {odd}") from odd


class Stream:
    """The body of an answer, read in pieces; on an upgraded connection, also a way to write."""

    def __init__(self, source: _Source, answer: http.client.HTTPResponse) -> None:
        self._source, self._answer = source, answer
        self.status = answer.status
        self.is_open_both_ways = answer.status == http.client.SWITCHING_PROTOCOLS

    def read(self, most: int) -> bytes:
        """The next bytes; empty at the end. A truncated chunked body raises http.client.IncompleteRead."""
        return self._source.input.read1(most) if self.is_open_both_ways else self._answer.read1(most)

    def pieces(self) -> Iterator[bytes]:
        """The whole body in pieces, as they arrive."""
        while piece := self.read(_PIECE):
            yield piece

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Pieces of output, each with OUT or ERR, from the engine's frames for a container without a terminal."""
        while head := self._exactly(_HEAD):
            size, kind = int.from_bytes(head[4:], "big"), head[0]
            if kind not in _KINDS or any(head[1:4]):
                raise Excess(f"what begins with {head!r} instead of a frame")
            # A frame may claim to have 4 GiB: pass on its pieces without waiting for all of it.
            while size:
                piece = self.read(min(size, _PIECE))
                if not piece:
                    raise http.client.IncompleteRead(b"", size)
                size -= len(piece)
                yield (ERR if kind == ERR else OUT), piece

    def write(self, data: bytes) -> None:
        """Send input. Raises OSError."""
        self._source.connection.settimeout(BEGIN_S)
        self._source.connection.sendall(data)

    def end_input(self) -> None:
        """Tell the other side that the input has ended."""
        self._source.connection.shutdown(socket.SHUT_WR)

    def set_wait(self, seconds: float | None) -> None:
        """Set how long all further reading may take."""
        self._source.allow(None, None if seconds is None else time.monotonic() + seconds)

    def _exactly(self, size: int) -> bytes:
        """Exactly `size` bytes, or none at the end."""
        data = b""
        while len(data) < size:
            piece = self.read(size - len(data))
            if not piece and data:
                raise http.client.IncompleteRead(data, size - len(data))
            if not piece:
                return b""
            data += piece
        return data


def read_lines(frames: Iterable[tuple[int, bytes]]) -> Iterator[str]:
    """The lines of both streams as they arrive; a line longer than LONGEST_LINE is cut into pieces."""
    rests = {OUT: bytearray(), ERR: bytearray()}
    for kind, piece in frames:
        rest = rests[kind]
        rest += piece
        *lines, last = rest.split(b"\n")
        rests[kind] = last
        if len(last) > framing.LONGEST_LINE:
            lines, rests[kind] = [*lines, last], bytearray()
        yield from (line.decode(errors="replace").removesuffix("\r") for line in lines)
    yield from (rest.decode(errors="replace") for rest in rests.values() if rest)


class _Source(io.RawIOBase):
    """The bytes of a connection, within limits; `input` is the buffered reader for them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._left: int | None = None
        self._until: float | None = None
        self._seconds = 0.0
        self._paced, self._moved, self._waited = False, 0, 0.0
        # One reader for all answers, so that what it has read ahead is not lost.
        self.input = _Input(self, _PIECE)

    def allow(self, most: int | None, until: float | None, paced: bool = False) -> None:
        """Limit what may be read from now on: to `most` bytes, and until that time.

        `paced`: at least as fast as a steady transfer (framing.py).
        """
        self._left, self._until, self._paced = most, until, paced
        self._seconds = 0.0 if until is None else until - time.monotonic()
        self._moved, self._waited = 0, 0.0

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes. Raises TimeoutError, Excess."""
        began = time.monotonic()
        wait = None if self._until is None else self._until - began
        if self._paced:
            wait = framing.SLOWEST_OVER_S - self._waited
        try:
            if wait is not None and wait <= 0:
                raise TimeoutError
            self.connection.settimeout(wait)
            data = self.connection.recv(min(len(buffer), _PIECE))
        except TimeoutError:
            seconds = framing.SLOWEST_OVER_S if self._paced else self._seconds
            raise TimeoutError(f"no answer within {in_seconds(seconds)}") from None
        self._count(len(data), time.monotonic() - began)
        buffer[: len(data)] = data
        return len(data)

    def _count(self, size: int, waited_s: float) -> None:
        self._moved, self._waited = self._moved + size, self._waited + waited_s
        if self._left is not None and (left := self._left - size) < 0:
            raise Excess(f"more than {amount(MOST_ANSWER)}")
        if self._left is not None:
            self._left = left
        # Only the time spent waiting for the engine counts: the caller may be slow to use the lines.
        if self._paced and self._waited >= framing.SLOWEST_OVER_S:
            if self._moved < framing.SLOWEST * framing.SLOWEST_OVER_S:
                raise TimeoutError(f"{amount(self._moved)} in {in_seconds(self._waited)}")
            self._moved, self._waited = 0, 0.0


class _Input(io.BufferedReader):
    """A reader for one answer after another: the end of an answer does not close it."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read that many bytes. Raises Excess if the number is negative, as a chunk's may be."""
        return super().read(_length(size))

    def read1(self, size: int = -1, /) -> bytes:
        """Read up to that many bytes, with one look at the connection. Raises Excess as `read` does."""
        return super().read1(_length(size))

    def close(self) -> None:
        """Stay open."""


def _length(size: int | None) -> int:
    if size is None or size < 0:
        raise Excess("a chunk without a length")
    return size


class _Http(http.client.HTTPConnection):
    """HTTP over a connection that is open already."""

    auto_open = 0

    def __init__(self, source: _Source) -> None:
        super().__init__("engine")
        self.sock: Any = _Socket(source)


class _Socket:
    """The methods of a socket that `http.client` uses."""

    def __init__(self, source: _Source) -> None:
        self._source = source

    def sendall(self, data: bytes) -> None:
        """Send all the data."""
        self._source.connection.sendall(data)

    def makefile(self, _: str) -> _Input:
        """The reader for the answer."""
        return self._source.input

    def close(self) -> None:
        """Do nothing when `http.client` closes the connection because the engine asks for it."""
        # The answer may not have been read yet: its reader closes the connection.
