"""What the witnesses of a run's nodes (on_end.py) ask each other: whether a node has ended, how, and who acts.

A question is a line of JSON with the run's token, and so is the answer. Standard library only.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_WAIT_S, _MOST = 1.0, 1 << 20


def serve(address: str, port: int, token: str, answer: Callable[[], dict[str, Any]]) -> None:
    """Answer the other witnesses from now on, until this process ends. Raises OSError if the port is taken."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((address, port))
    listening.listen(64)

    def accept() -> None:
        while True:
            connection, _ = listening.accept()
            with connection, suppress(OSError, ValueError):
                connection.settimeout(_WAIT_S)
                if _read(connection).get("token") == token:
                    connection.sendall(json.dumps(answer()).encode() + b"\n")

    threading.Thread(target=accept, daemon=True).start()


def ask(address: str, port: int, token: str) -> dict[str, Any] | None:
    """What the witness there says; None if its host does not answer, empty if only the witness is gone."""
    try:
        with socket.create_connection((address, port), _WAIT_S) as connection:
            connection.sendall(json.dumps({"token": token}).encode() + b"\n")
            return _read(connection)
    except ConnectionRefusedError:
        return {}
    except (OSError, ValueError):
        return None


def _read(connection: socket.socket) -> dict[str, Any]:
    data = b""
    while not data.endswith(b"\n") and len(data) < _MOST and (piece := connection.recv(1 << 16)):
        data += piece
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value
