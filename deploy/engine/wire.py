"""HTTP with an engine that nobody trusts: the bytes, the frames and the time of its answers have limits.

`http.client` speaks, over a connection that somebody else has made: a local socket, one that `ssh` forwards, or a
program that carries bytes (`docker system dial-stdio`). The SDK of Docker has no limits, and takes 0.4 s to import.
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
# For a stream that goes both ways.
UPGRADE = {"Connection": "Upgrade", "Upgrade": "tcp"}
OUT, ERR = 1, 2
# Both have the part of a socket that is needed here.
Connection = socket.socket | Pipe


class Excess(Exception):
    """An engine says more than we read, or what no engine says: in words."""


# What a connection that is lost, or that makes no sense, raises.
LOST = (OSError, EOFError, http.client.HTTPException, Excess)


class Answer(NamedTuple):
    """The status of an answer, and all of its body."""

    status: int
    body: bytes


class Wire:
    """One connection to an engine, which answers one request after the other.

    Raises OSError (TimeoutError: it is silent, or too slow) and http.client.HTTPException if the engine ends it or says
    what is no HTTP, Excess.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection, self._source = connection, _Source(connection)
        self._http = _Http(self._source)
        self.used = False

    def ask(self, method: str, path: str, body: bytes | None = None, seconds: float = CALL_S) -> Answer:
        """Ask, and read all of the answer."""
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
        """Ask, and leave the answer to be read as a stream: of any length, but steady unless it is to `follow`."""
        answer = self._begin(method, path, body, BEGIN_S, headers)
        self._source.allow(None, None, paced=not follow)
        return Stream(self._source, answer)

    def close(self) -> None:
        """End it. A second call does nothing."""
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
    """A body that comes little by little; of a connection that was upgraded, also to write to."""

    def __init__(self, source: _Source, answer: http.client.HTTPResponse) -> None:
        self._source, self._answer = source, answer
        self.status = answer.status
        self.is_open_both_ways = answer.status == http.client.SWITCHING_PROTOCOLS

    def read(self, most: int) -> bytes:
        """What comes next; nothing at the end. A chunked body that is cut raises http.client.IncompleteRead."""
        return self._source.input.read1(most) if self.is_open_both_ways else self._answer.read1(most)

    def pieces(self) -> Iterator[bytes]:
        """All of it, as it comes."""
        while piece := self.read(_PIECE):
            yield piece

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Pieces of output, each with OUT or ERR: as an engine frames what a container without a terminal writes."""
        while head := self._exactly(_HEAD):
            size, kind = int.from_bytes(head[4:], "big"), head[0]
            if kind not in _KINDS or any(head[1:4]):
                raise Excess(f"what begins with {head!r} instead of a frame")
            # A frame may say that it has 4 GiB: nobody waits for all of it.
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
        """Tell the other side that no more input comes."""
        self._source.connection.shutdown(socket.SHUT_WR)

    def set_wait(self, seconds: float | None) -> None:
        """How long all that is read from now on may take."""
        self._source.allow(None, None if seconds is None else time.monotonic() + seconds)

    def _exactly(self, size: int) -> bytes:
        """So many bytes, or none at the end."""
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
    """The lines of both streams as they come; a longer one than LONGEST_LINE comes in pieces."""
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
    """The bytes of a connection, within limits; `input` is what reads them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._left: int | None = None
        self._until: float | None = None
        self._seconds = 0.0
        self._paced, self._moved, self._waited = False, 0, 0.0
        # One for all answers: what it has read ahead must not be lost.
        self.input = _Input(self, _PIECE)

    def allow(self, most: int | None, until: float | None, paced: bool = False) -> None:
        """So many bytes from now on, and until that time; `paced`: as many as a steady transfer has (framing.py)."""
        self._left, self._until, self._paced = most, until, paced
        self._seconds = 0.0 if until is None else until - time.monotonic()
        self._moved, self._waited = 0, 0.0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what comes next. Raises TimeoutError, Excess."""
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
        # Only the time that we wait counts: who takes the lines may be slow.
        if self._paced and self._waited >= framing.SLOWEST_OVER_S:
            if self._moved < framing.SLOWEST * framing.SLOWEST_OVER_S:
                raise TimeoutError(f"{amount(self._moved)} in {in_seconds(self._waited)}")
            self._moved, self._waited = 0, 0.0


class _Input(io.BufferedReader):
    """Reads for one answer after the other: the end of one does not close it."""

    def close(self) -> None:
        """Stay open."""


class _Http(http.client.HTTPConnection):
    """HTTP over a connection that stands already."""

    auto_open = 0

    def __init__(self, source: _Source) -> None:
        super().__init__("engine")
        self.sock: Any = _Socket(source)


class _Socket:
    """The part of a socket that `http.client` uses."""

    def __init__(self, source: _Source) -> None:
        self._source = source

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        self._source.connection.sendall(data)

    def makefile(self, _: str) -> _Input:
        """What reads the answer."""
        return self._source.input

    def close(self) -> None:
        """End the connection, as an engine asks for it."""
        # The answer may not have been read yet: its reader ends it.
