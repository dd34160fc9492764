"""Whether a role's program is ready for the others: a port or a URL answers, a file is there, or a line was printed.

Every look has a limit of time and bytes: the program is the user's, and may answer anything or for ever. What is asked
is this node itself, never another address.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ..membership.meeting import endpoint

_CONNECT_S, _ANSWER_S, _ANSWER_MOST = 1.0, 2.0, 1024
_SHOWN = 3
_PIECE = 4 << 20
# An answer counts if it was given by the present life of the program: what an earlier one left says nothing.
Look = Callable[[float], str]


def look_of(kind: str, address: str, port: int, about: str, log: Path, work: Path) -> Look:
    """What looks whether the program that began at a time (unix seconds) is ready: why not, or an empty text.

    `kind`: `port`, `url`, `file`, `line`, or nothing: it is ready once it runs. `about`: the URL's path, the file or
    the line. `log`: what the program prints. `work`: where it works.
    """
    looks: dict[str, Look] = {
        "port": lambda began: port_answers(address, port),
        "url": lambda began: _url_answers(address, port, about),
        "file": lambda began: _file_is_there(work / about, about, began),
        "line": _line_of(log, about),
    }
    return looks.get(kind, lambda began: "")


def port_answers(address: str, port: int) -> str:
    """Why nothing can be had on a port of this node, or an empty text."""
    try:
        _connect(address, port).close()
    except OSError as fault:
        return f"nothing answers on port {port} ({_words(fault)})"
    return ""


def elsewhere(address: str, port: int, listens: Sequence[tuple[str, int]]) -> str:
    """Where a program listens that shall answer on a port, as an addition to why it does not; else an empty text."""
    ours = (address, "127.0.0.1", "::1", "0.0.0.0", "::")
    if not port or any(own in ours and at == port for own, at in listens):
        return ""
    shown = ", ".join(endpoint(own, at) for own, at in listens[:_SHOWN])
    return f"; its program listens on {shown or 'no port'}"


def _url_answers(address: str, port: int, path: str) -> str:
    answer, end = b"", time.monotonic() + _ANSWER_S
    try:
        with _connect(address, port) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            while b"\n" not in answer and len(answer) < _ANSWER_MOST and (left := end - time.monotonic()) > 0:
                connection.settimeout(left)
                answer += connection.recv(_ANSWER_MOST) or b"\n"
    except OSError as fault:
        return f"http://localhost:{port}{path} does not answer ({_words(fault)})"
    code = re.match(rb"HTTP/\S+ ([0-9]{3})\s", answer)
    shown = code[1].decode() if code else "no HTTP"
    return "" if shown == "200" else f"http://localhost:{port}{path} answers {shown}, not 200"


def _connect(address: str, port: int) -> socket.socket:
    """A connection to a service of this node: it may listen on the node's address, or on loopback alone."""
    try:
        return socket.create_connection((address, port), _CONNECT_S)
    except OSError:
        return socket.create_connection(("::1" if ":" in address else "127.0.0.1", port), _CONNECT_S)


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


def _line_of(log: Path, text: str) -> Look:
    """Looks for a text in what a program prints, as far as it has come."""
    at, seen, wanted = log.stat().st_size if log.exists() else 0, -1.0, text.encode()

    def look(began: float) -> str:
        nonlocal at, seen
        with suppress(OSError), log.open("rb") as file:
            file.seek(at)
            new = file.read(_PIECE)
            # The end of a piece may be the text's beginning.
            at += max(0, len(new) - len(wanted) + 1)
            seen = time.time() if wanted in new else seen
        return "" if seen >= began else f"it has not printed {text!r}"

    return look
