"""How the nodes of a run ask each other questions and answer them, also before the ranks start and after they end.

For example, on_end.py asks how a node has ended; waiting_node.py asks whether it has its place in the queue. Question
and answer are one line of JSON each. Both prove that they come from the same run (proof.py). Standard library only.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from muster.errors import Refused
from muster.files import parse

from . import meeting, proof

_WAIT_S, _MOST, _AT_ONCE = 1.0, 1 << 20, 64
Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def serve(address: str, port: int, key: str, answer: Answer) -> socket.socket:
    """Answer the other nodes from now on, each in a separate thread, until `meeting.close` closes the socket.

    Raises Refused if the port is taken.
    """
    try:
        listening = meeting.listen(address, port)
    except OSError as fault:
        # End immediately: otherwise the other nodes would connect to a foreign program, and hang without an error.
        what = f"cannot listen on {meeting.endpoint(address, port)} for the other nodes: {fault.strerror}"
        raise Refused(what, "choose another port, or start the run again: it then uses other ports") from fault

    def reply(connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError, TypeError, OverflowError):
            _reply(connection, key, answer)

    threading.Thread(target=meeting.accept, args=(listening, _AT_ONCE, reply), daemon=True).start()
    return listening


def ask(
    address: str, port: int, key: str, question: Mapping[str, Any] | None = None, wait_s: float = _WAIT_S
) -> dict[str, Any] | None:
    """The answer of the node at this address; None if there is none, empty if only the node is gone.

    None also stands for an answer that does not prove the key. If the host refuses the connection, the node is gone.
    """
    try:
        with socket.create_connection((address, port), _WAIT_S) as connection:
            theirs = _read(connection, _WAIT_S).get("word", "")
            ours, text = proof.random_word(), json.dumps(dict(question or {}))
            _write(connection, {"word": ours, "text": text, "proof": proof.make_proof(key, "ask", theirs, ours, text)})
            reply = _read(connection, wait_s)
            return _proved(reply, key, "answer", theirs, ours)
    except ConnectionRefusedError:
        return {}
    except (OSError, ValueError):
        return None


def ask_all(
    addresses: Sequence[str], port: int, key: str, question: Mapping[str, Any] | None = None
) -> list[dict[str, Any] | None]:
    """The answers of the nodes at these addresses. All are asked in parallel, so that a lost node delays no other."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda address: ask(address, port, key, question), addresses))


def _reply(connection: socket.socket, key: str, answer: Answer) -> None:
    ours = proof.random_word()
    connection.settimeout(_WAIT_S)
    _write(connection, {"word": ours})
    asked = _read(connection, _WAIT_S)
    theirs = asked.get("word", "")
    question = _proved(asked, key, "ask", ours, theirs)
    if question is not None:
        text = json.dumps(dict(answer(question)))
        _write(connection, {"text": text, "proof": proof.make_proof(key, "answer", ours, theirs, text)})


def _proved(
    message: Mapping[str, Any], key: str, role: str, listeners: object, openers: object
) -> dict[str, Any] | None:
    """The content of a message if its sender knows the key, else None. Raises ValueError."""
    text = message.get("text")
    if not isinstance(text, str) or not proof.is_valid(message.get("proof"), key, role, listeners, openers, text):
        return None
    return _object(text)


def _write(connection: socket.socket, value: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps(value).encode() + b"\n")


def _read(connection: socket.socket, wait_s: float) -> dict[str, Any]:
    """The next JSON object. Raises OSError, ValueError."""
    return _object(read_line(connection, wait_s))


def read_line(connection: socket.socket, wait_s: float) -> bytes:
    """A line, the whole of which must arrive within `wait_s` seconds. Raises OSError, ValueError."""
    data, end = b"", time.monotonic() + wait_s
    while b"\n" not in data:
        connection.settimeout(max(0.001, end - time.monotonic()))
        piece = connection.recv(1 << 16)
        data += piece
        if not piece or len(data) > _MOST or time.monotonic() > end:
            raise ValueError("no whole line in time")
    return data


def _object(text: str | bytes) -> dict[str, Any]:
    value = parse(text)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value
