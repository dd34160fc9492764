"""The door of the board: an HTTP server on 127.0.0.1 only, which answers GET requests that have its address's token.

On Linux, where the kernel tells which user asks, other users of this machine are refused even with the token.

A request that a browser may send for another site is refused before anything is read: a foreign Host (rebinding),
Origin or Sec-Fetch-Site. A request's size and time are limited, an answer's size is limited, and a policy limits what
each page may do.
"""

from __future__ import annotations

import hmac
import io
import os
import re
import secrets
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...core.errors import DONE, UsageError
from ...job.allowed import own_users
from ..console import Console
from .answers import Board, Reply

HERE = "127.0.0.1"
# The most bytes of a request's head; how long it may take to arrive, or its answer to be read; how many requests are
# answered at the same time.
_MOST_HEAD, _MOST_S, _AT_ONCE = 16 << 10, 5.0, 16
_REFUSED, _NOT_HERE, _NO_METHOD = Reply(403, b"refused\n"), Reply(404, b"not here\n"), Reply(405, b"only GET\n")
_HEADERS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# A row in the kernel's tables of connections: the port of one end, the port of the other, and after four columns the
# user of the first end.
_CONNECTION = r":%04X \w+:%04X(?: +\S+){4} +(\d+)"
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"


class Server(TCPServer):
    """Listens as soon as it is made; `url` is the address with the token. (HTTPServer would ask a name server.)"""

    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, board: Board, port: int = 0) -> None:
        self.board, self.token = board, secrets.token_urlsafe(24)
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        try:
            super().__init__((HERE, port), _Request)
        except OSError as fault:
            raise UsageError(
                f"--port {port}: {fault.strerror}", "without --port, muster board takes a free one"
            ) from fault

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"http://{HERE}:{self.server_address[1]}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Reply in a separate thread; if too many requests are open, close this one without a reply."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        threading.Thread(target=self._answer, args=(request, client_address), daemon=True, name="muster-board").start()

    def _answer(self, request: Any, client_address: Any) -> None:
        try:
            with suppress(OSError, ValueError):  # the reader goes away or is too slow, or the address is invalid
                self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)
            self._free.release()


def serve(board: Board, port: int, opens: bool, console: Console) -> int:
    """Serve this board until Ctrl-C; in a terminal, open it in the browser. Raises UsageError."""
    with Server(board, port) as server:
        threading.Thread(target=server.board.prepare, daemon=True, name="muster-board-reads").start()
        console.line(server.url, {"kind": "board", "url": server.url})
        if console.asks:
            console.note("Ctrl-C ends it")
            if opens and sys.stdout.isatty() and _has_screen():
                webbrowser.open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return DONE


def _has_screen() -> bool:
    """Whether a browser can open a window: without a screen, a text browser would take over this terminal."""
    return sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))


class _Request(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "Muster", ""

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(io.BytesIO(_head(self.connection)))
        self.connection.settimeout(_MOST_S)

    def handle(self) -> None:
        """Reply to one request, then close the connection."""
        self.handle_one_request()

    def do_GET(self) -> None:
        """Reply to a GET request."""
        self.close_connection = True
        self._send(self._answer())

    def __getattr__(self, name: str) -> Any:
        """Refuse every method but GET."""
        if name.startswith("do_"):
            return lambda: self._send(_NO_METHOD)
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:
        """Keep no log, because the address contains the token."""

    def _answer(self) -> Reply:
        if not self._is_own():
            return _REFUSED
        address = urlsplit(self.path)
        _, token, *rest = [*address.path.split("/"), ""][:8]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return _REFUSED
        asked: Mapping[str, list[str]] = parse_qs(address.query, max_num_fields=16)
        return self.server.board.answer([part for part in rest if part], asked, time.time()) or _NOT_HERE

    def _is_own(self) -> bool:
        """Whether the request comes from a page of the board, or from a user who typed the address."""
        given, port = self.headers.get_all, self.server.server_address[1]
        hosts = given("Host", [])
        return (
            hosts in ([f"{HERE}:{port}"], [f"localhost:{port}"])
            and {*given("Origin", [])} <= {f"http://{hosts[0]}"}
            and {*given("Sec-Fetch-Site", [])} <= {"same-origin", "none"}
            and _users(self.client_address[1], port) <= {0, *own_users()}
        )

    def _send(self, answer: Reply) -> None:
        self.send_response(answer.code)
        own = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), "ETag": answer.mark}
        for name, value in {**_HEADERS, "Content-Security-Policy": answer.policy or _POLICY, **own}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)


def _users(theirs: int, ours: int) -> set[int]:
    """The user ids at the other end of a connection, because all users see the address with which a browser is started.

    Empty if the kernel does not tell. For an end that is already closed, the kernel tells root.
    """
    row = _CONNECTION % (theirs, ours)
    return {int(user) for table in Path("/proc/net").glob("tcp*") for user in re.findall(row, table.read_text())}


def _head(connection: socket.socket) -> bytes:
    """The head of a request; empty if it is too long or too slow, and then there is no answer."""
    head, end = b"", time.monotonic() + _MOST_S
    with suppress(OSError):
        while len(head) <= _MOST_HEAD and (left := end - time.monotonic()) > 0:
            if b"\r\n\r\n" in head:
                return head
            connection.settimeout(left)
            if not (piece := connection.recv(4096)):
                break
            head += piece
    return b""
