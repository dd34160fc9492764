"""A fake Docker engine for a host: it answers Docker's API from a list of containers, or as a test tells it to.

Its documents are those of `samples.container` and `server.container`: name, labels, folder, state. `odd` maps a part
of a request's path to the answer that replaces the honest one. Run as a program, this file is a `docker system
dial-stdio` that knows the container in $HOME/engine/line.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Documents = Sequence[Mapping[str, Any]]


class FakeEngine:
    """Answers requests on each connection given to `serve`; `asked` lists them, as `GET /containers/json?all=1`."""

    def __init__(
        self, documents: Callable[[], Documents] | Documents = (), odd: Mapping[str, bytes | None] | None = None
    ) -> None:
        self._documents = documents if callable(documents) else lambda: documents
        self.odd, self.console = dict(odd or {}), b""
        self.after_odd: Callable[[], object] = lambda: None
        self.ends_after = "no path has this"
        self.asked: list[str] = []

    def serve(self, recv: Callable[[int], bytes], send: Callable[[bytes], object]) -> None:
        """Answer one request after another until the connection ends or an odd answer is None."""
        rest = b""
        while True:
            while b"\r\n\r\n" not in rest:
                piece = recv(1 << 16)
                if not piece:
                    return
                rest += piece
            head, _, rest = rest.partition(b"\r\n\r\n")
            method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
            size = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
            )
            while len(rest) < size:
                rest += recv(1 << 16)
            rest = rest[size:]
            self.asked.append(f"{method} {path}")
            answer = self._answer(path)
            if answer is None:
                return
            send(answer)
            if any(part in path for part in self.odd):
                self.after_odd()
            if self.ends_after in path:
                return

    def listen(self, path: Path) -> None:
        """Serve a Unix socket, each connection in its own thread."""
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen()

        def accept() -> None:
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                self.serve(connection.recv, connection.sendall)

        threading.Thread(target=accept, daemon=True).start()

    def _answer(self, path: str) -> bytes | None:
        for part, answer in self.odd.items():
            if part in path:
                return answer
        documents = list(self._documents())
        if path.startswith("/version"):
            return answered({"Version": "27.3.1"})
        if path.startswith("/containers/json"):
            return answered([listed(each, number) for number, each in enumerate(documents)])
        if path.startswith("/containers/") and path.endswith("/json"):
            name = path.split("/")[2]
            for number, each in enumerate(documents):
                if name in (number_as_id(number), each["Name"].removeprefix("/")):
                    return answered(inspected(each, number))
            return answered({"message": f"No such container: {name}"}, "404 Not Found")
        if "/logs?" in path:
            framed = struct.pack(">BxxxI", 1, len(self.console)) + self.console if self.console else b""
            return answered(framed)
        return answered(b"", "204 No Content")


def answered(body: object, status: str = "200 OK") -> bytes:
    """An honest HTTP answer with this body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def number_as_id(number: int) -> str:
    """The id of the container with this number."""
    return f"{number:064x}"


def listed(document: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A container as it appears in the engine's list of containers."""
    state = document["State"]
    words = f"Exited ({state['ExitCode']}) 5 minutes ago" if state["Status"] == "exited" else "Up 3 minutes"
    return {
        "Id": number_as_id(number),
        "Names": [document["Name"]],
        "Labels": document["Config"]["Labels"],
        "State": state["Status"],
        "Status": words,
        "Created": 1795238000,
        "Mounts": document["Mounts"],
    }


def inspected(document: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A container as the engine describes it when a client inspects it."""
    config = {"Env": document.get("variables", []), "Hostname": "h", **document["Config"]}
    return {**document, "Id": number_as_id(number), "Config": config}


def described(name: str, labels: Mapping[str, str], state: Mapping[str, object], folder: str = "") -> dict[str, Any]:
    """What container_line.sh asks a host about one container, with that run folder."""
    mounts = [{"Destination": "/muster/run", "Source": folder}] if folder else []
    return {"Id": number_as_id(0), "Name": name, "State": state, "Config": {"Labels": labels}, "Mounts": mounts}


def of_home(home: Path) -> Documents:
    """The one container of a host, as `Server.runs` wrote it."""
    line = home / "engine/line"
    return [json.loads(line.read_text().removeprefix("container "))] if line.exists() else []


if __name__ == "__main__":
    FakeEngine(lambda: of_home(Path(os.environ["HOME"]))).serve(
        lambda most: os.read(0, most), lambda data: os.write(1, data) if data else sys.exit()
    )
