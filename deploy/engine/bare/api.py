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
from urllib.parse import parse_qs, unquote, urlsplit

from . import keeper, processes, store
from .store import Any, Refused, read, write

_PIECE, _MOST_HEAD, _MOST_BODY = 1 << 16, 1 << 16, 1 << 20
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
        parts = urlsplit(target)
        path, query = unquote(parts.path), {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            status, answer = _answer(method, path, query, body)
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
            answer = work(query, body, *match.groups())
            return 204 if answer is None else 200, answer
    raise Refused("page not found", 404)


def _list(query: dict[str, str], *_: Any) -> Any:
    labels = json.loads(query.get("filters", "{}")).get("label", [])
    rows = []
    for each in store.matching([["label", label] for label in labels]):
        about = each.about()
        row = {**about, "Names": [each.name], "State": about["State"]["Status"], "Labels": each.config["Labels"]}
        row |= {"Status": store.status_words(each.state)}
        rows.append({**row, "Created": int(os.path.getmtime(f"{each.folder}/config.json"))})
    return rows


def _logs(query: dict[str, str], _: Any, name: str) -> None:
    times = query.get("timestamps") == "1"
    lines = keeper.lines(store.find(name), tail=query.get("tail", "all"))
    _send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for at, text in lines:
        _frame(1, (f"{at} ".encode() if times else b"") + text)
    sys.exit(0)


def _make_command(_: Any, body: dict[str, Any], name: str) -> Any:
    id, container = os.urandom(32).hex(), store.find(name)
    container.require_running()
    store.forget_commands()
    write(store.command(id), {"Container": container.id, "Words": body["Cmd"], "Input": body["AttachStdin"]})
    return {"Id": id}


def _command(id: str) -> dict[str, Any]:
    about = read(store.command(id))
    if about is None:
        raise Refused(f"No such exec instance: {id}", 404)
    return dict(about)


def _command_ended(_: Any, __: Any, id: str) -> Any:
    code = _command(id).get("Code")
    return {"Running": code is None, "ExitCode": code}


def _run_command(_: Any, __: Any, id: str) -> None:
    """Run a command over this connection, which is then used for nothing else.

    The command itself reads the connection as its input. If the client leaves, the command ends.
    """
    about = _command(id)
    container = store.find(about["Container"])
    container.require_running()
    pid, ready = keeper.spawn_read(container, about["Words"], about["Input"])
    _send(_UPGRADED)
    while ready.get_map():
        for stream, data in keeper.arrived(ready):
            _frame(stream, data)
    write(store.command(id), {**about, "Code": keeper.wait_for(pid)})
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


def _signal(query: dict[str, str], _: Any, name: str) -> None:
    processes.send(store.find(name), getattr(signal, query.get("signal", ""), signal.SIGKILL))


def _by_name(work: Callable[[str], Any]) -> Callable[..., Any]:
    return lambda _, __, name: work(name)


_NAME = "([^/]+)"
_ROUTES: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", "/containers/json", _list),
    ("GET", f"/containers/{_NAME}/json", _by_name(lambda name: store.find(name).about())),
    ("GET", f"/containers/{_NAME}/logs", _logs),
    ("POST", f"/containers/{_NAME}/kill", _signal),
    ("DELETE", f"/containers/{_NAME}", _by_name(lambda name: keeper.end(store.find(name)))),
    ("POST", f"/containers/{_NAME}/exec", _make_command),
    ("GET", f"/exec/{_NAME}/json", _command_ended),
    ("POST", f"/exec/{_NAME}/start", _run_command),
    ("GET", "/system/df", _usage),
    ("DELETE", f"/volumes/{_NAME}", _by_name(store.drop_volume)),
]
