"""The part of Docker's API that Muster uses, over standard input and output (`docker system dial-stdio`)."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import parse_qsl, unquote

from . import keeper, processes, store
from .store import Any, Container, Refused, read, write

_MOST_HEAD, _MOST_BODY = 1 << 16, 1 << 20
# How much of a container's id its commands' ids begin with.
_SHORT = 12
# The head of an answer after which the connection only carries one command's input and output.
_UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


def serve() -> None:
    """Answer requests one after another until the input ends."""
    # Never read ahead: the bytes after a request may be a command's input.
    source = io.BufferedReader(io.FileIO(0, closefd=False), 1)
    while rows := _read_head(source):
        method, target, _ = rows[0].split(" ", 2)
        size = next((int(row.split(":")[1]) for row in rows if row.lower().startswith("content-length:")), 0)
        body = json.loads(source.read(min(size, _MOST_BODY)) or b"null")
        path, _, query = target.partition("?")
        try:
            status, answer = _answer(method, unquote(path), dict(parse_qsl(query)), body)
        except Refused as refused:
            status, answer = refused.status, {"message": str(refused)}
        data = b"" if answer is None else json.dumps(answer).encode()
        _send(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)


def _read_head(source: io.BufferedIOBase) -> list[str]:
    """The lines of a request's head; empty if the head is cut."""
    rows = list[str]()
    while row := source.readline(_MOST_HEAD).decode("latin-1"):
        if not row.rstrip("\r\n"):
            return rows
        rows.append(row)
    return []


def _send(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _frame(stream: int, data: bytes) -> None:
    _send(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data)


def _answer(method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
    for wanted, pattern, work in _ROUTES:
        if wanted == method and (match := re.fullmatch(pattern, path)):
            answer = work("".join(match.groups()), query, body)
            return 204 if answer is None else 200, answer
    raise Refused("page not found", 404)


def _list(_: str, query: dict[str, str], __: Any) -> Any:
    labels = json.loads(query.get("filters", "{}")).get("label", [])
    return [each.row() for each in store.matching([["label", label] for label in labels])]


def _logs(name: str, query: dict[str, str], _: Any) -> None:
    lines = keeper.lines(store.find(name), times=query.get("timestamps") == "1", tail=query.get("tail", "all"))
    _send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for line in lines:
        _frame(1, line)
    sys.exit(0)


def _make_command(name: str, _: Any, body: dict[str, Any]) -> Any:
    container = store.find(name)
    container.require_running()
    # The beginning of a command's id is its container's, which has the command's file.
    id = container.id[:_SHORT] + os.urandom(16).hex()
    write(_command(container, id), {"Words": body["Cmd"], "Input": body["AttachStdin"]})
    return {"Id": id}


def _command(container: Container, id: str) -> str:
    return f"{container.folder}/command-{id}.json"


def _find_command(id: str) -> tuple[Container, dict[str, Any]]:
    """A command, and its container. Raises Refused."""
    container = store.find(id[:_SHORT])
    if about := read(_command(container, id)):
        return container, about
    raise Refused(f"No such exec instance: {id}", 404)


def _command_ended(id: str, *_: Any) -> Any:
    container, about = _find_command(id)
    if "Code" in about:
        os.unlink(_command(container, id))
    return {"Running": "Code" not in about, "ExitCode": about.get("Code")}


def _run_command(id: str, *_: Any) -> None:
    """Run a command over this connection, which is then used for nothing else.

    The command itself reads the connection as its input. If the client leaves, the command ends.
    """
    container, about = _find_command(id)
    container.require_running()
    pid, ready = keeper.spawn_read(container, about["Words"], about["Input"])
    _send(_UPGRADED)
    while ready.get_map():
        for stream, data in keeper.arrived(ready):
            _frame(stream, data)
    write(_command(container, id), {**about, "Code": keeper.wait_for(pid)})
    os._exit(0)


def _usage(*_: Any) -> Any:
    volumes = []
    for about in store.volumes():
        size = _size(f"{store.root()}/volumes/{about['Name']}")
        volumes.append({**about, "UsageData": {"RefCount": int(store.has_volume(about["Name"])), "Size": size}})
    return {"Volumes": volumes}


def _size(place: str) -> int:
    """A folder's bytes on disk; a file with several hard links, as uv's cache has, counts only for its share."""
    total = 0
    for folder, _, files in os.walk(place):
        for name in files:
            with suppress(OSError):
                at = os.lstat(os.path.join(folder, name))
                total += at.st_blocks * 512 // at.st_nlink
    return total


def _signal(name: str, query: dict[str, str], _: Any) -> None:
    processes.send(store.find(name), getattr(signal, query.get("signal", ""), signal.SIGKILL))


_NAME = "([^/]+)"
_ROUTES: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", "/containers/json", _list),
    ("GET", f"/containers/{_NAME}/json", lambda name, *_: store.find(name).about()),
    ("GET", f"/containers/{_NAME}/logs", _logs),
    ("POST", f"/containers/{_NAME}/kill", _signal),
    ("DELETE", f"/containers/{_NAME}", lambda name, *_: keeper.end(store.find(name))),
    ("POST", f"/containers/{_NAME}/exec", _make_command),
    ("GET", f"/exec/{_NAME}/json", _command_ended),
    ("POST", f"/exec/{_NAME}/start", _run_command),
    ("GET", "/system/df", _usage),
    ("DELETE", f"/volumes/{_NAME}", lambda name, *_: store.drop_volume(name)),
]
