"""Whether a role's program is ready for the others: a port or a URL answers, a file is there, or a line was printed.

Every look has a limit of time and bytes: the program is the user's, and may answer anything or for ever. What is asked
is this node itself, never another address.
"""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

_CONNECT_S, _ANSWER_S, _ANSWER_MOST = 1.0, 2.0, 1024
_SHOWN = 3
_PIECE = 4 << 20
# An answer counts if it was given by the present life of the program: what an earlier one left says nothing.
Look = Callable[[float], str]


def look_of(ready: str, address: str, port: int, log: Path, work: Path) -> Look:
    """What looks whether the program that began at a time (unix seconds) is ready: why not, or an empty text.

    `ready`: `port [N]`, `file PATH`, `line TEXT`, `http://localhost[:N]/PATH`, or nothing: it is ready once it runs.
    `address` and `port`: of this node's service. `log`: what the program prints. `work`: where it works.
    """
    kind, _, rest = ready.partition(" ")
    if kind == "port":
        return lambda began: port_answers(address, port_of(ready, port))
    if kind == "file":
        return lambda began: _file_is_there(work / rest, rest, began)
    if kind == "line":
        return Line(log, rest)
    if kind.startswith("http://"):
        parts = urlsplit(ready)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return lambda began: _url_answers(address, port_of(ready, port), path)
    return lambda began: ""


def port_of(ready: str, port: int) -> int:
    """The port that has to answer: one that `ready` names, or the role's own; 0: none."""
    kind, _, rest = ready.partition(" ")
    if kind == "port":
        return int(rest or port)
    return (urlsplit(ready).port or port) if kind.startswith("http://") else port


def port_answers(address: str, port: int) -> str:
    """Why nothing can be had on a port of this node, or an empty text."""
    try:
        _connect(address, port, _CONNECT_S).close()
    except OSError as fault:
        return f"nothing answers on port {port} ({_words(fault)})"
    return ""


def elsewhere(ready: str, address: str, port: int, listens: Sequence[tuple[str, int]]) -> str:
    """Where a program listens that shall answer on a port, as an addition to why it does not; else an empty text."""
    wanted, ours = port_of(ready, port), (address, "127.0.0.1", "::1", "0.0.0.0", "::")
    if not ready.startswith(("port", "http://")) or any(own in ours and at == wanted for own, at in listens):
        return ""
    shown = ", ".join(f"[{own}]:{at}" if ":" in own else f"{own}:{at}" for own, at in listens[:_SHOWN])
    return f"; its program listens on {shown}" if shown else "; its program listens on no port"


def _url_answers(address: str, port: int, path: str) -> str:
    end = time.monotonic() + _ANSWER_S
    try:
        with _connect(address, port, _CONNECT_S) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while b"\n" not in answer and len(answer) < _ANSWER_MOST:
                connection.settimeout(max(0.01, end - time.monotonic()))
                piece = connection.recv(_ANSWER_MOST)
                answer += piece
                if not piece or time.monotonic() > end:
                    break
    except OSError as fault:
        return f"http://localhost:{port}{path} does not answer ({_words(fault)})"
    first = answer.split(b"\n")[0].decode("ascii", "replace").split()
    if len(first) > 1 and first[0].startswith("HTTP/") and first[1] == "200":
        return ""
    code = first[1] if len(first) > 1 and first[0].startswith("HTTP/") and first[1].isdecimal() else "no HTTP"
    return f"http://localhost:{port}{path} answers {code[:20]}, not 200"


def _connect(address: str, port: int, seconds: float) -> socket.socket:
    """A connection to a service of this node: it may listen on the node's address, or on loopback alone."""
    try:
        return socket.create_connection((address, port), seconds)
    except OSError:
        return socket.create_connection(("::1" if ":" in address else "127.0.0.1", port), seconds)


def _words(fault: OSError) -> str:
    return "no answer in time" if isinstance(fault, TimeoutError) else str(fault.strerror or fault).lower()


def _file_is_there(path: Path, shown: str, began: float) -> str:
    """An older file is one that an earlier life left. A link is not followed: it may lead anywhere."""
    with suppress(OSError, ValueError):
        status = os.lstat(path)
        # A file system may count time in whole seconds.
        if stat.S_ISREG(status.st_mode) and status.st_mtime >= int(began):
            return ""
        return f"{shown} is from before it started, or is not a file"
    return f"there is no file {shown}"


class Line:
    """Looks for a text in what a program prints, as far as it has come."""

    def __init__(self, log: Path, text: str) -> None:
        self._log, self._text, self._shown = log, text.encode(), text
        self._rest, self._seen = b"", -1.0
        self._at = log.stat().st_size if log.exists() else 0

    def __call__(self, began: float) -> str:
        with suppress(OSError), self._log.open("rb") as file:
            file.seek(self._at)
            new = file.read(_PIECE)
            self._at += len(new)
            if self._text in self._rest + new:
                self._seen = time.time()
            self._rest = (self._rest + new)[-len(self._text) + 1 :] if len(self._text) > 1 else b""
        return "" if self._seen >= began else f"it has not printed {self._shown!r}"
