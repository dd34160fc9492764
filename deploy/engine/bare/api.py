"""Docker's API over standard input and output, as `docker system dial-stdio` leads to it: what Muster asks of it."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from . import keeper, processes, store
from .store import Refused, read, write

_PIECE, _MOST_HEAD, _MOST_BODY = 1 << 16, 1 << 16, 1 << 20
_OUT, _ERR = 1, 2


def serve() -> None:
    """Answer one request after the other, until the input ends."""
    while head := _head():
        line, *rows = head.split("\r\n")
        method, target, _ = line.split(" ", 2)
        size = next((int(row.split(":")[1]) for row in rows if row.lower().startswith("content-length:")), 0)
        body = json.loads(_exactly(min(size, _MOST_BODY)) or b"null")
        parts = urlsplit(target)
        path, query = unquote(parts.path), {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            _answer(method, path, query, body)
        except Refused as refused:
            _reply(refused.status, {"message": str(refused)})


def _head() -> str:
    data = b""
    while not data.endswith(b"\r\n\r\n") and len(data) < _MOST_HEAD:
        if not (piece := os.read(0, 1)):
            return ""
        data += piece
    return data.decode("latin-1").rstrip("\r\n")


def _exactly(size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := os.read(0, size - len(data))):
        data += piece
    return data


def _send(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _reply(status: int, value: Any = None) -> None:
    body = b"" if value is None else json.dumps(value).encode()
    _send(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)


def _answer(method: str, path: str, query: dict[str, str], body: Any) -> None:
    for wanted, pattern, work in _ROUTES:
        if wanted == method and (match := re.fullmatch(pattern, path)):
            work(query, body, *match.groups())
            return
    raise Refused("page not found", 404)


def _version(*_: Any) -> None:
    from .main import VERSION

    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    _reply(200, {"Version": VERSION, "Os": "linux", "Arch": machine})


def _info(*_: Any) -> None:
    _reply(200, {"MemTotal": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")})


def _list(query: dict[str, str], *_: Any) -> None:
    from .main import matching, status_words

    labels = json.loads(query.get("filters", "{}")).get("label", [])
    rows = []
    for each in matching([["label", label] for label in labels]):
        about = each.about()
        row = {"Id": each.id, "Names": [f"/{each.name}"], "State": about["State"]["Status"], "Mounts": about["Mounts"]}
        began = int(each.folder.stat().st_ctime)
        rows.append({**row, "Labels": about["Config"]["Labels"], "Status": status_words(each.state), "Created": began})
    _reply(200, rows)


def _inspect(_: Any, __: Any, name: str) -> None:
    _reply(200, store.find(name).about())


def _logs(query: dict[str, str], _: Any, name: str) -> None:
    container, times, tail = store.find(name), query.get("timestamps") == "1", query.get("tail", "all")
    lines: list[tuple[int, bytes]] = []

    def take(at: str, stream: int, text: bytes, ending: bytes) -> None:
        lines.append((stream, (f"{at} ".encode() if times else b"") + text + ending))

    keeper.read_log(container, False, "", take)
    _send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for stream, text in lines if tail == "all" else lines[-int(tail) :] if int(tail) else []:
        _frame(stream, text)
    sys.exit(0)


def _frame(stream: int, data: bytes) -> None:
    _send(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data)


def _kill(query: dict[str, str], _: Any, name: str) -> None:
    processes.send(name, getattr(signal, query.get("signal", "SIGKILL"), signal.SIGKILL))
    _reply(204)


def _remove(_: Any, __: Any, name: str) -> None:
    from .main import end

    end(store.find(name), True)
    _reply(204)


def _make_command(_: Any, body: dict[str, Any], name: str) -> None:
    container = store.find(name)
    if container.state["Status"] != "running":
        raise Refused(f"container {container.id} is not running", 409)
    commands = store.root() / "commands"
    for old in commands.glob("*.json"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > 3600:
                old.unlink()
    id = os.urandom(32).hex()
    write(commands / f"{id}.json", {"Container": container.id, "Words": body["Cmd"], "Input": body["AttachStdin"]})
    _reply(201, {"Id": id})


def _command_ended(_: Any, __: Any, id: str) -> None:
    about = read(store.root() / "commands" / f"{id}.json")
    if about is None:
        raise Refused(f"No such exec instance: {id}", 404)
    code = about.get("Code")
    _reply(200, {"Running": code is None, **({} if code is None else {"ExitCode": code})})


def _run_command(_: Any, __: Any, id: str) -> None:
    """Run it over this connection, which then has nothing else."""
    path = store.root() / "commands" / f"{id}.json"
    about = read(path)
    if about is None:
        raise Refused(f"No such exec instance: {id}", 404)
    container = store.find(about["Container"])
    _send(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
    pipes = [os.pipe() for _ in range(3)]
    environment = processes.variables(container)
    pid = os.fork()
    if pid == 0:
        try:
            processes.end_with_parent()
            for target, end in ((0, pipes[0][0]), (1, pipes[1][1]), (2, pipes[2][1])):
                os.dup2(end, target)
            processes.become(container, about["Words"], environment)
        except BaseException as failed:
            os.write(2, f"{failed}\n".encode())
        finally:
            os._exit(127)
    for end in (pipes[0][0], pipes[1][1], pipes[2][1]):
        os.close(end)
    if not about["Input"]:
        os.close(pipes[0][1])
    _carry(pipes[0][1] if about["Input"] else -1, {pipes[1][0]: _OUT, pipes[2][0]: _ERR})
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    write(path, {**about, "Code": 128 - code if code < 0 else code})
    sys.exit(0)


def _carry(into: int, out: dict[int, int]) -> None:
    """Carry input there, and frames of output here, until the output ends. Who leaves ends the command."""
    with selectors.DefaultSelector() as ready:
        ready.register(0, selectors.EVENT_READ)
        for reading in out:
            ready.register(reading, selectors.EVENT_READ)
        while any(reading in ready.get_map() for reading in out):
            for key, _ in ready.select():
                data = os.read(key.fd, _PIECE)
                if key.fd in out and data:
                    _frame(out[key.fd], data)
                elif key.fd in out or not data:
                    ready.unregister(key.fd)
                    if key.fd == 0 and into >= 0:
                        os.close(into)
                        into = -1
                elif into >= 0:
                    with suppress(BrokenPipeError):
                        while data:
                            data = data[os.write(into, data) :]


def _usage(*_: Any) -> None:
    images = [{"RepoTags": about["RepoTags"], "Size": about["Size"], "Containers": 0} for about in store.images()]
    volumes = []
    for about in store.volumes():
        size = _size(str(store.root() / "volumes" / about["Name"]))
        usage = {"RefCount": int(store.has_volume(about["Name"])), "Size": size}
        volumes.append({**about, "UsageData": usage})
    _reply(200, {"Images": images, "Volumes": volumes})


def _size(place: str) -> int:
    seen = dict[int, int]()
    for folder, _, files in os.walk(place):
        for name in files:
            with suppress(OSError):
                at = os.lstat(os.path.join(folder, name))
                seen[at.st_ino] = at.st_blocks * 512
    return sum(seen.values())


def _image(_: Any, __: Any, name: str) -> None:
    _reply(200, store.image(name))


def _drop(drop: Callable[[str], None]) -> Callable[..., None]:
    def work(_: Any, __: Any, name: str) -> None:
        drop(name)
        _reply(204)

    return work


_NAME = "([^/]+)"
_ROUTES: list[tuple[str, str, Callable[..., None]]] = [
    ("GET", "/version", _version),
    ("GET", "/info", _info),
    ("GET", "/containers/json", _list),
    ("GET", f"/containers/{_NAME}/json", _inspect),
    ("GET", f"/containers/{_NAME}/logs", _logs),
    ("POST", f"/containers/{_NAME}/kill", _kill),
    ("DELETE", f"/containers/{_NAME}", _remove),
    ("POST", f"/containers/{_NAME}/exec", _make_command),
    ("GET", f"/exec/{_NAME}/json", _command_ended),
    ("POST", f"/exec/{_NAME}/start", _run_command),
    ("GET", "/networks", lambda *_: _reply(200, [])),
    ("GET", "/system/df", _usage),
    ("GET", "/images/(.+)/json", _image),
    ("DELETE", "/images/(.+)", _drop(store.drop_image)),
    ("DELETE", f"/volumes/{_NAME}", _drop(store.drop_volume)),
]
