"""Whether a role's program is ready for the others: a port or URL answers, a file exists, or a line was printed.

Every look has a limit of time and bytes: the program is the user's, and may answer anything, or without end. Only this
node itself is asked, never another address.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ..membership import peers
from ..membership.meeting import endpoint

_CONNECT_S, _ANSWER_S = 1.0, 2.0
_SHOWN = 3
_PIECE = 4 << 20
# An answer counts only if it comes from the program's current life, not if an earlier life left it.
Look = Callable[[float], str]


def readiness_check(kind: str, address: str, port: int, about: str, log: Path) -> Look:
    """Return a function that checks whether the program is ready; it returns why not, or an empty text.

    The function's argument is when the program began (unix seconds). `kind`: `port`, `url`, `file`, `line`, or empty:
    then it is ready as soon as it runs. `about`: the URL's path, the file or the line. `log`: the program's output.
    """
    looks: dict[str, Look] = {
        "port": lambda began: why_no_answer(address, port),
        "url": lambda began: _url_answers(address, port, about),
        "file": lambda began: _file_is_there(about, began),
        "line": _line_of(log, about),
    }
    return looks.get(kind, lambda began: "")


def why_no_answer(address: str, port: int) -> str:
    """Why no connection to a port of this node is possible, or an empty text."""
    try:
        _connect(address, port).close()
    except OSError as fault:
        return f"nothing answers on port {port} ({_words(fault)})"
    return ""


def listening_words(listens: Sequence[tuple[str, int]]) -> str:
    """Where a program that is not ready listens, as an addition to the reason."""
    shown = ", ".join(endpoint(own, at) for own, at in listens[:_SHOWN])
    return f"; its program listens on {shown or 'no port'}"


def _url_answers(address: str, port: int, path: str) -> str:
    url, line = f"http://localhost:{port}{path}", b""
    try:
        with _connect(address, port) as connection, suppress(ValueError):
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            line = peers.read_line(connection, _ANSWER_S)
    except OSError as fault:
        return f"{url} does not answer ({_words(fault)})"
    code = re.match(rb"HTTP/\S+ ([0-9]{3})\s", line)
    shown = code[1].decode() if code else "no HTTP"
    return "" if shown == "200" else f"{url} answers {shown}, not 200"


def _connect(address: str, port: int) -> socket.socket:
    """Connect to a service of this node, which may listen on the node's address, or only on loopback."""
    try:
        return socket.create_connection((address, port), _CONNECT_S)
    except OSError:
        return socket.create_connection(("::1" if ":" in address else "127.0.0.1", port), _CONNECT_S)


def _words(fault: OSError) -> str:
    return "no answer in time" if isinstance(fault, TimeoutError) else str(fault.strerror or fault).lower()


def _file_is_there(path: str, began: float) -> str:
    """Check for a new file. An older one comes from an earlier life. Links are not followed: they may lead anywhere."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return f"there is no file {path}"
    # Some file systems store times in whole seconds.
    is_new = stat.S_ISREG(status.st_mode) and status.st_mtime >= int(began)
    return "" if is_new else f"{path} is older than this start, or is not a file"


def _line_of(log: Path, text: str) -> Look:
    """Return a function that searches the program's output so far for a text."""
    at, seen, wanted = log.stat().st_size if log.exists() else 0, -1.0, text.encode()

    def look(began: float) -> str:
        nonlocal at, seen
        with suppress(OSError), log.open("rb") as file:
            file.seek(at)
            new = file.read(_PIECE)
            # The end of a piece may be the beginning of the text.
            at += max(0, len(new) - len(wanted) + 1)
            # This compares lives, not times: after the clock was set back, a time comparison would never find the text.
            seen = began if wanted in new else seen
        return "" if seen == began else f"it has not printed {text!r}"

    return look
