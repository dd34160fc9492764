"""Docker's API: one class for this machine's engine and for those of hosts, which are reached over SSH (door/).

A connection is opened when it is needed, and kept for the next call. An engine's answers are not trusted (wire.py), and
are checked where they are read. The end of a stream is not the end of a container: the caller checks the container
afterwards.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode

from ..causes import docker_faults
from ..causes.docker_faults import DockerFault
from ..core import fields
from ..core.errors import BadAnswer, DeployError
from ..core.fields import Reader, array, flag, optional, record, table, text, whole
from ..core.text import amount
from .container_command import ContainerCommand, Ended
from .wire import CALL_S, ERR, LOST, MOST_ANSWER, OUT, UPGRADE, Answer, Connection, Excess, Stream, Wire, read_lines

T = TypeVar("T")
_MOST_CONTAINERS, _MOST_KEPT, _GONE = 10_000, 2, 404
# Statuses for things that are gone or have ended already: removing or ending them counts as success.
_DONE_ALREADY = (304, 404, 409)
# 10 GB at 1 MB/s take three hours; an engine may send nothing for a long time while it unpacks.
_PULL_S = 4 * 3600.0
_STATE = record({"Status": text(20, r"[a-z]*")}, {"ExitCode": whole(1 << 32, least=-(1 << 32)), "StartedAt": text(64)})
_MOUNTS = optional(array(record({"Destination": text(4096)}, {"Source": text(4096)})))
_TABLE = optional(table(fields.words(1000), fields.words(), 10_000))


def read_labels(value: object, what: str) -> dict[str, str]:
    """A container's labels; none if they are malformed. (Other users may label their containers as they like.)"""
    return _TABLE(value, what) or {}


_LISTED = array(
    record(
        {"Id": text(64, "[0-9a-f]+"), "Names": array(fields.words(300), 100), "State": text(20, "[a-z]*")},
        {"Labels": read_labels, "Mounts": _MOUNTS, "Status": fields.words(200), "Created": whole()},
    ),
    _MOST_CONTAINERS,
)
_INSPECTED = record(
    {
        "Id": text(64, "[0-9a-f]+"),
        "Name": fields.words(300),
        "State": _STATE,
        "Config": record({}, {"Labels": read_labels, "Env": fields.default(array(fields.words(1 << 17), 10_000), []),
                              "Hostname": text(300)}),
    },
    {"Mounts": _MOUNTS, "RestartCount": whole(1 << 32)},
)  # fmt: skip
_MADE = record({"Id": text(64, "[0-9a-f]+")})
_ENDED = record({"Running": flag}, {"ExitCode": fields.default(whole(1 << 32, least=-(1 << 32)), -1)})
_REFUSAL = record({"message": fields.words(2000)})
_COUNT, _USED = whole(1 << 60, least=-1), 409
_USES = {"RefCount": whole(1 << 32, least=-1), "Size": _COUNT}
_IMAGE = record(
    {"RepoTags": fields.default(array(fields.words(300)), []), "Size": _COUNT},
    {"Labels": read_labels, "Containers": _COUNT},
)
_VOLUME = record(
    {"Name": fields.words(300)},
    {"Labels": read_labels, "CreatedAt": text(64), "UsageData": fields.default(record({}, _USES), {})},
)
_RUNS = ("created", "running", "paused")
# In a list of containers, the engine gives exit codes only in words.
_EXITED = re.compile(r"Exited \(([0-9]{1,9})\)")


def label_of(run: str = "") -> str:
    """The label that finds the containers of a run, or those of all runs."""
    return f"muster.run={run}" if run else "muster.run"


class Container(NamedTuple):
    """A container as its engine describes it. `code` is the exit code of its last end, None while it runs.

    `mounts`: the path on the host, by the path in the container. `words`: the engine's status text ("Up 3 minutes"),
    which only a list has; `variables`, `started`, `hostname` and `restarts` are only known after `inspect`.
    """

    id: str
    name: str
    labels: Mapping[str, str]
    mounts: Mapping[str, str]
    status: str
    words: str = ""
    created: int = 0
    code: int | None = None
    started: str = ""
    variables: tuple[str, ...] = ()
    hostname: str = ""
    restarts: int = 0

    @property
    def runs(self) -> bool:
        """Whether the container's process runs, or the engine is about to restart it."""
        return self.status in ("running", "paused", "restarting")


class Stored(NamedTuple):
    """An image by one of its tags, or a volume: its labels, size in bytes, and whether a container uses it.

    `made`: when a volume was created, in the engine's words; empty for an image.
    """

    name: str
    labels: Mapping[str, str]
    size: int | None
    used: bool
    made: str = ""


class Reach(Protocol):
    """A way to reach an engine, which also explains why a connection failed."""

    host: str

    def connect(self) -> Connection:
        """Open a new connection. Raises DeployError, OSError."""

    def explain(self, failed: BaseException, connection: Connection | None) -> DeployError:
        """The error for a connection that failed; `connection` is None if it could not be opened."""


class Engine:
    """One engine. Its methods are thread-safe, and raise the errors of its reach (`explain`), or DockerFault."""

    def __init__(self, reach: Reach) -> None:
        self._reach, self._lock, self._idle = reach, threading.Lock(), list[Wire]()

    def version(self, seconds: float = CALL_S) -> str:
        """The engine's version. This and all methods below also raise BadAnswer."""
        answer = self._ask("GET", "/version", None, seconds)
        about = record({"Version": text(100)})(fields.document(answer.body, "docker version"), "docker version")
        return str(about["Version"])

    def memory(self) -> int:
        """The memory of the engine's machine, in bytes."""
        about = record({"MemTotal": whole(least=1)})(self._json("GET", "/info"), "docker info")
        return int(about["MemTotal"])

    def platform(self) -> str:
        """The platform of the engine's machine, such as `linux/arm64`."""
        about = record({"Os": text(50), "Arch": text(50)})(self._json("GET", "/version"), "docker version")
        return f"{about['Os']}/{about['Arch']}"

    def image(self, name: str) -> dict[str, Any] | None:
        """What the engine reports about an image, for image/model.py to check; None if it has no image of that name."""
        about = self._json("GET", f"/images/{quote(name, safe='/:@')}/json", none=True)
        if not isinstance(about, dict | None):
            raise BadAnswer("an image", "an object", about)
        return about

    def save(self, name: str) -> Iterator[bytes]:
        """An image as an archive, in pieces."""
        with self._stream("GET", f"/images/{quote(name, safe='/:@')}/get") as (wire, stream):
            yield from self._explained(wire, stream.pieces())

    @contextmanager
    def pulling(self, reference: str, credentials: str) -> Iterator[Iterator[str]]:
        """Let the engine fetch an image from its registry, and yield its progress lines. It stops when the `with` ends.

        `credentials`: the login for the registry, as the value of the header X-Registry-Auth; the engine does not store
        it.
        """
        # Without a tag or a digest, the engine would fetch all tags.
        tag = "" if ":" in reference.rpartition("/")[2] else "latest"
        query = urlencode({"fromImage": reference, "tag": tag})
        headers = {"X-Registry-Auth": credentials} if credentials else {}
        with self._stream("POST", f"/images/create?{query}", follow=True, headers=headers) as (wire, stream):
            stream.set_wait(_PULL_S)
            yield read_lines((OUT, piece) for piece in self._explained(wire, stream.pieces()))

    def containers(self, *labels: str) -> list[Container]:
        """The containers with all these labels (`name` or `name=value`), running or not; the newest first."""
        query = urlencode({"all": 1, "filters": json.dumps({"label": labels})})
        return read_containers(self._json("GET", f"/containers/json?{query}"))

    def inspect(self, name: str) -> Container | None:
        """Look at one container, with its exit code and start time; None if no container has that name or id."""
        about = self._json("GET", f"/containers/{quote(name, safe='')}/json", none=True)
        return None if about is None else read_container(about)

    def inspected(self, *labels: str) -> list[Container]:
        """Like `containers`, but each is inspected. A container that disappears meanwhile is left out."""
        looked = [self.inspect(each.id) for each in self.containers(*labels)]
        return [each for each in looked if each]

    def logs(self, name: str, tail: int | None = None, times: bool = False) -> Iterator[bytes]:
        """What a container has written so far, both streams together, in pieces."""
        words = {"stdout": 1, "stderr": 1, "timestamps": int(times), "tail": "all" if tail is None else tail}
        with self._stream("GET", f"/containers/{quote(name, safe='')}/logs?{urlencode(words)}") as (wire, stream):
            for _, piece in self._explained(wire, stream.frames()):
                yield piece

    def signal(self, name: str, signal: str) -> None:
        """Send a signal to a container; nothing happens if it does not run."""
        self._act("POST", f"/containers/{quote(name, safe='')}/kill?{urlencode({'signal': signal})}")

    def remove(self, name: str) -> None:
        """Kill a container, and remove it with its anonymous volumes."""
        self._act("DELETE", f"/containers/{quote(name, safe='')}?force=1&v=1", seconds=90.0)

    def remove_networks(self, label: str) -> int:
        """Remove the networks with this label, and return how many there were."""
        query = urlencode({"filters": json.dumps({"label": [label]})})
        networks = array(_MADE)(self._json("GET", f"/networks?{query}"), "the networks")
        for network in networks:
            self._act("DELETE", f"/networks/{network['Id']}")
        return len(networks)

    def stored(self, seconds: float) -> tuple[list[Stored], list[Stored]]:
        """The engine's images and volumes. The engine sizes every file of a volume, which may take minutes."""
        seen = self._json("GET", "/system/df?type=image&type=volume&verbose=1", seconds=seconds)
        images = [
            Stored(tag, each.get("Labels", {}), each["Size"], each.get("Containers", 0) != 0)
            for each in _listed(seen, "Image", _IMAGE)
            for tag in each["RepoTags"]
        ]
        volumes = []
        for each in _listed(seen, "Volume", _VOLUME):
            usage = each.get("UsageData", {})
            size = usage.get("Size", -1)
            used, made = usage.get("RefCount", -1) != 0, each.get("CreatedAt", "")
            volumes.append(Stored(each["Name"], each.get("Labels", {}), None if size < 0 else size, used, made))
        return images, volumes

    def remove_stored(self, kind: str, name: str) -> bool:
        """Remove an image or volume (`images`, `volumes`), unless a container uses it. Returns whether it is gone."""
        answer = self._ask("DELETE", f"/{kind}/{quote(name, safe='/:@')}", None, 90.0)
        if answer.status >= 300 and answer.status not in (_GONE, _USED):
            raise self._refusal(answer)
        return answer.status != _USED

    @contextmanager
    def run_inside(self, name: str, words: Sequence[str], reads: bool = True) -> Iterator[ContainerCommand]:
        """Run a command in a running container. `reads`: it gets an input; otherwise its input is empty."""
        asked = {"Cmd": list(words), "AttachStdin": reads, "AttachStdout": True, "AttachStderr": True}
        path = f"/containers/{quote(name, safe='')}/exec"
        made = _MADE(self._json("POST", path, asked), "a command in a container")["Id"]
        begun = self._stream(
            "POST", f"/exec/{made}/start", {"Detach": False, "Tty": False}, follow=True, headers=UPGRADE
        )
        with begun as (wire, stream):
            explain = partial(self._reach.explain, connection=wire.connection)
            yield ContainerCommand(
                stream, self._explained(wire, stream.frames()), lambda: self._ended_with(made), explain
            )

    def ask_inside(self, name: str, words: Sequence[str], seconds: float, data: bytes | None = None) -> Ended:
        """Run a command in a container until it ends, within limits. `data`: its input."""
        with self.run_inside(name, words, reads=data is not None) as inside:
            inside.set_wait(seconds)
            if data is not None:
                inside.write(data)
                inside.end_input()
            texts = {OUT: bytearray(), ERR: bytearray()}
            for kind, piece in inside.frames:
                texts[kind] += piece
                if len(texts[kind]) > MOST_ANSWER:
                    raise inside.explain(Excess(f"more than {amount(MOST_ANSWER)}"))
            out, err = (text.decode(errors="replace") for text in texts.values())
            return Ended(inside.code(), out, err)

    def _ended_with(self, command: str) -> int | None:
        about = _ENDED(self._json("GET", f"/exec/{command}/json"), "the end of a command")
        return None if about["Running"] else int(about.get("ExitCode", -1))

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    def _act(self, method: str, path: str, seconds: float = CALL_S) -> None:
        answer = self._ask(method, path, None, seconds)
        if answer.status >= 300 and answer.status not in _DONE_ALREADY:
            raise self._refusal(answer)

    def _json(self, method: str, path: str, body: Any = None, none: bool = False, seconds: float = CALL_S) -> Any:
        """The JSON value in the engine's answer; with `none`, None for something that the engine does not have."""
        answer = self._ask(method, path, None if body is None else json.dumps(body).encode(), seconds)
        if answer.status == _GONE and none:
            return None
        if not 200 <= answer.status < 300:
            raise self._refusal(answer)
        return fields.document(answer.body, "the engine's answer", most=len(answer.body))

    def _refusal(self, answer: Answer, upgrade: bool = False) -> DockerFault:
        words = f"Error response from daemon: status {answer.status}"
        if upgrade:  # the words of Docker's own client: a proxy before the engine does not pass on such connections
            words = f"unable to upgrade to tcp, received {answer.status}"
        with suppress(BadAnswer):
            message = _REFUSAL(fields.document(answer.body, "a refusal"), "a refusal")["message"]
            words = f"Error response from daemon: {message}"
        return docker_faults.fault(words, host=self._reach.host)

    def _ask(self, method: str, path: str, body: bytes | None, seconds: float) -> Answer:
        wire = self._wire()
        try:
            try:
                answer = wire.ask(method, path, body, seconds)
            except (ConnectionError, http.client.NotConnected):
                # The engine may have closed an idle connection. A request that only reads is sent again.
                wire.close()
                if not wire.used or method != "GET":
                    raise
                wire = Wire(self._connect())
                answer = wire.ask(method, path, body, seconds)
        except BaseException as failed:
            fault = self._reach.explain(failed, wire.connection) if isinstance(failed, LOST) else None
            wire.close()
            if fault:
                raise fault from failed
            raise
        with self._lock:
            if len(self._idle) < _MOST_KEPT:
                self._idle.append(wire)
                return answer
        wire.close()
        return answer

    @contextmanager
    def _stream(
        self, method: str, path: str, body: Any = None, follow: bool = False, headers: dict[str, str] | None = None
    ) -> Iterator[tuple[Wire, Stream]]:
        wire, upgrade = Wire(self._connect()), headers is UPGRADE
        try:
            try:
                stream = wire.open(method, path, None if body is None else json.dumps(body).encode(), follow, headers)
                good = stream.is_open_both_ways if upgrade else stream.status < 300
                refused = None if good else Answer(stream.status, stream.read(1 << 16))
            except LOST as failed:
                raise self._reach.explain(failed, wire.connection) from failed
            if refused:
                raise self._refusal(refused, upgrade)
            yield wire, stream
        finally:
            wire.close()

    def _explained(self, wire: Wire, pieces: Iterator[T]) -> Iterator[T]:
        try:
            yield from pieces
        except LOST as failed:
            raise self._reach.explain(failed, wire.connection) from failed

    def _wire(self) -> Wire:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return Wire(self._connect())

    def _connect(self) -> Connection:
        try:
            return self._reach.connect()
        except LOST as failed:
            raise self._reach.explain(failed, None) from failed


def read_containers(value: object) -> list[Container]:
    """Read an engine's list of containers. Raises BadAnswer."""
    return [
        Container(
            each["Id"],
            (each["Names"] or ["?"])[0].removeprefix("/"),
            each.get("Labels", {}),
            _mounts(each),
            each["State"],
            each.get("Status", ""),
            each.get("Created", 0),
            int(exited[1]) if (exited := _EXITED.match(each.get("Status", ""))) else None,
        )
        for each in _LISTED(value, "the containers")
    ]


def read_container(value: object) -> Container:
    """Read an engine's description of one container. Raises BadAnswer."""
    seen = _INSPECTED(value, "a container")
    state, config = seen["State"], seen["Config"]
    return Container(
        id=seen["Id"],
        name=seen["Name"].removeprefix("/"),
        labels=config.get("Labels", {}),
        mounts=_mounts(seen),
        status=state["Status"],
        code=None if state["Status"] in _RUNS else state.get("ExitCode", 0),
        started=state.get("StartedAt", ""),
        variables=tuple(config.get("Env", ())),
        hostname=config.get("Hostname", ""),
        restarts=seen.get("RestartCount", 0),
    )


def _listed(seen: object, kind: str, item: Reader[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stored things of a kind: from `Images`, or since Docker 29 from `Items` in a summary. Raises BadAnswer."""
    several = fields.default(array(item, _MOST_CONTAINERS), list[dict[str, Any]]())
    sums = record({}, {f"{kind}s": several, f"{kind}Usage": record({}, {"Items": several})})(seen, "what is stored")
    return [*sums.get(f"{kind}s", ()), *sums.get(f"{kind}Usage", {}).get("Items", ())]


def _mounts(about: Mapping[str, Any]) -> dict[str, str]:
    return {mount["Destination"]: mount.get("Source", "") for mount in about.get("Mounts") or ()}
