"""What a host is, as frozen values, and the readers of what it says. Pure.

hosts/observe.py asks (`commands.look`), hosts/plan.py and hosts/container.py decide by it. A host answers in lines: a
word, a blank, and the value; some values are JSON. Lines with other words are passed over.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..config.values import VARIABLE
from ..core import docker_faults, fields, formats
from ..core.docker_faults import DockerFault
from ..core.errors import BadAnswer
from ..core.fields import Reader, array, decimal, digits, flag, interface, record, table, text, whole
from ..core.names import ContainerName, NodeName, RunId, container_name, node_name, run_id, run_ids

# What container engines and virtual machines add to a host: no peer is reached through them.
_INNER = ("lo", "docker", "br-", "veth", "cni", "virbr", "flannel", "podman", "nerdctl")
_LISTEN = "0A"
_SOCKET, _INDEX = re.compile(r"[0-9A-Fa-f]{8,32}:([0-9A-Fa-f]{4})"), re.compile(r"[0-9]{1,9}")
_KILOBYTES, _MOST_ID, _MOST_KERNEL = digits(0, 1 << 50), (1 << 32) - 1, 500
# What `docker version`, `ip -j addr` and `ip -j route get` say, as far as it is used. Old ones of ip write `{}` too.
_VERSION = record({}, {"Server": fields.either(fields.nothing, record({"Version": text(100)}))})
_ENTRY = record(
    {}, {"scope": text(20), "local": fields.address, "prefixlen": whole(0, 128), "deprecated": flag, "family": text(20)}
)
_LINKS = array(record({}, {"ifname": interface, "addr_info": array(_ENTRY)}), 10_000)
_ROUTES = array(record({}, {"dev": interface, "prefsrc": fields.address}), 100)
_STATE = record({"Status": text(20, r"[a-z]*")}, {"ExitCode": whole(-(1 << 32), 1 << 32), "StartedAt": text(64)})
_FOLDERS = fields.optional(array(text(4096), 10))
_CONTAINER = record(
    {
        "name": text(300),
        "labels": table(text(1000), fields.words(), 10_000),
        "state": lambda value, what: {"ExitCode": 0, **_STATE(value, what)},
    },
    {"folder": array(text(4096), 1)},
)
# As sh, bash and zsh say it. A context or a file may be "not found" as well.

T = TypeVar("T")


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi lists it; memory in MiB."""

    index: int
    name: str
    memory_mib: int


@dataclass(frozen=True)
class Address:
    """An address of a host, with the length of its network's prefix and the interface that has it."""

    interface: str
    address: str
    prefix: int

    def shares_network(self, other: Address) -> bool:
        """Whether the other one is reached without a gateway."""
        network = ipaddress.ip_interface(f"{self.address}/{self.prefix}").network
        return ipaddress.ip_address(other.address) in network


@dataclass(frozen=True)
class Route:
    """The way to a peer: the interface, and the address that packets leave with."""

    interface: str
    source: str


@dataclass(frozen=True)
class Container:
    """A container of a run, known by its labels; `place` is the node's place in the run, `code` its exit code. One
    without a `node` was made by `make up`.

    `ours`: its run folder lies in the home of the user we log in as; `user` is who else it belongs to.

    `code` is None while it runs or is about to run again; `last_code` is that of its last life. `started` is when its
    engine started it last, by the host's clock. `secrets` are names.
    """

    run: RunId
    node: NodeName
    place: int
    nodes: int
    name: ContainerName
    status: str
    code: int | None
    port: int
    command: str = ""
    started: str = ""
    last_code: int = 0
    secrets: tuple[str, ...] = ()
    ours: bool = True
    user: str = ""

    @property
    def script(self) -> bool:
        """Whether it runs a script of the user's: the trainer's own words are all options."""
        return bool(self.command) and not self.command.startswith("--")


@dataclass(frozen=True)
class HostFacts:
    """What a host said. `open_files`: the most its engine may grant, None where it did not say or there is no limit.

    `memory`, `free` (on Docker's disk) and `room` (for run folders) are bytes; `runs` are run folders.

    `clock_ahead_s` is against this machine's clock. `kernel`: what the GPUs' driver wrote into the kernel's log, where
    we may read that.
    """

    home: str
    uid: int
    gid: int
    architecture: str
    cores: int
    memory: int
    docker: str
    free: int | None
    open_files: int | None
    rdma: bool
    gpus: tuple[Gpu, ...]
    addresses: tuple[Address, ...]
    reached_at: str
    listening: frozenset[int]
    containers: tuple[Container, ...]
    runs: frozenset[RunId]
    clock_ahead_s: float
    home_writable: bool = True
    user: str = ""
    room: int | None = None
    kernel: tuple[str, ...] = ()


def parse(said: str, now: float) -> HostFacts:
    """Read the answer to `host_commands.look`, heard at `now` (unix seconds).

    Raises DeployError without an engine, BadAnswer for a field that cannot be read.
    """
    rows = fields.rows(said)

    def one(word: str, reader: Reader[T], instead: T, *blank: str) -> T:
        return fields.default(reader, instead, *blank)(rows.get(word, [""])[0], word)

    engine = _engine(rows)
    ids = [*rows.get("ids", [""])[0].split(), "0", "0"]
    time_there = one("time", _time, None)
    return HostFacts(
        user=one("user", fields.words(64), ""),
        home=one("home", fields.text(4096, r"/[^\x00-\x1f\x7f]*"), ""),
        uid=digits(0, _MOST_ID)(ids[0], "ids"),
        gid=digits(0, _MOST_ID)(ids[1], "ids"),
        architecture=one("arch", fields.text(32, r"[A-Za-z0-9_.-]*"), ""),
        cores=one("cores", digits(1, 1 << 20), 1),
        memory=one("memory", _KILOBYTES, 0) * 1024,
        docker=engine,
        free=_kilobytes(one("free", _KILOBYTES, -1, "-")),
        open_files=_open_files(one("files", fields.text(200), "")),
        rdma="rdma" in rows,
        gpus=tuple(gpu for row in rows.get("gpu", ()) if (gpu := parse_gpu(row))),
        addresses=parse_addresses(one("addresses", fields.text(fields.MOST_DOCUMENT), "") or "[]"),
        reached_at=[*one("ssh", fields.text(300), "").split(), "", "", ""][2],
        listening=parse_listening(rows.get("socket", ())),
        containers=containers(rows.get("container", ()), rows.get("home", [""])[0]),
        runs=run_ids(rows.get("run", ())),
        clock_ahead_s=0.0 if time_there is None else round(time_there - now, 1),
        home_writable="home-readonly" not in rows,
        room=_kilobytes(one("room", _KILOBYTES, -1, "-")),
        kernel=tuple(row[:_MOST_KERNEL] for row in rows.get("kernel", ())[:100]),
    )


def _engine(rows: Mapping[str, list[str]]) -> str:
    """The engine's version."""
    said = rows.get("engine", [""])[0]
    if not said:
        raise engine_fault(rows.get("engine-said", [""])[0][:_MOST_KERNEL])
    server = _VERSION(fields.document(said, "docker version"), "docker version").get("Server")
    if not server:
        raise engine_fault(said[:_MOST_KERNEL])
    return str(server["Version"])


def _time(value: object, what: str) -> float | None:
    """`date +%s.%N`, also where it knows no %N."""
    return decimal(0.0, 1e11)(re.sub(r"\.?%?N$", "", value) if isinstance(value, str) else value, what)


def _open_files(said: str) -> int | None:
    """The first word of a line of /proc/<pid>/limits: None where there is no limit."""
    word = said.partition(" ")[0]
    return None if word in ("", "unlimited") else digits(0)(word, "files") or None


def _kilobytes(found: int) -> int | None:
    return None if found < 0 else found * 1024


def engine_fault(said: str) -> DockerFault:
    """Why a host has no engine that answers us, by the last words of its `docker version`; none at all: no Docker."""
    return docker_faults.fault(said or "docker: not found", "docker-down")


def parse_gpu(row: str) -> Gpu | None:
    """`0, NVIDIA A100-SXM4-80GB, 81920 MiB` as `nvidia-smi --query-gpu=index,name,memory.total` writes it."""
    cells = [cell.strip() for cell in row.split(",")]
    if len(cells) != 3 or not _INDEX.fullmatch(cells[0]):
        return None
    memory = cells[2].partition(" ")[0]
    return Gpu(int(cells[0]), cells[1][:100], int(memory) if _INDEX.fullmatch(memory) else 0)


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Addresses that a peer may reach, from `ip -j addr`: no loopback, no link-local, no container network.

    Raises BadAnswer.
    """
    found = []
    for link in _LINKS(fields.document(text, "addresses"), "addresses"):
        name = link.get("ifname", "")
        if name.startswith(_INNER):
            continue
        for entry in link.get("addr_info", ()):
            if entry.get("scope") == "global" and not entry.get("deprecated") and "local" in entry:
                found.append(_address(name, entry))
    return tuple(found)


def _address(interface: str, entry: Mapping[str, Any]) -> Address:
    local, prefix = entry["local"], entry.get("prefixlen", 0)
    if ":" not in local and prefix > 32:
        raise BadAnswer(f"the prefix of {local}", "0 to 32", prefix)
    return Address(interface, local, prefix)


def parse_route(text: str) -> Route | None:
    """The answer of `ip -j route get`; None when there is no way. Raises BadAnswer."""
    # Without a way `ip` says so in words.
    for route in _ROUTES(fields.document(text, "the route"), "the route") if text.startswith("[") else ():
        if route.get("dev") and route.get("prefsrc"):
            return Route(route["dev"], route["prefsrc"])
    return None


def parse_listening(rows: Sequence[str]) -> frozenset[int]:
    """Ports somebody listens on, from the lines of /proc/net/tcp and tcp6: `0: 0100007F:1F90 00000000:0000 0A ...`.

    Raises BadAnswer.
    """
    found = set()
    for row in rows:
        cells = row.split(None, 4)
        if len(cells) > 3 and cells[3] == _LISTEN:
            if not (port := _SOCKET.fullmatch(cells[1])):
                raise BadAnswer("a socket", "an address and a port in hexadecimal", cells[1])
            found.add(int(port[1], 16))
    return frozenset(found)


def containers(rows: Iterable[str], home: str) -> tuple[Container, ...]:
    """Those of runs, from lines of `scripts/container_line.sh`; `home` is that of the user we are there.

    Raises BadAnswer for one of ours that cannot be read. Others may label theirs as they like.
    """
    found = []
    for row in rows:
        value = fields.json_object(row, "a container")  # an engine's own words, whatever the labels are
        try:
            found.append(parse_container(row, home))
        except BadAnswer:
            if is_ours(value, home):
                raise
    return tuple(found)


def is_ours(value: Mapping[str, Any], home: str) -> bool:
    """Whether a container's run folder lies in that home. What else it says of itself its image may say as well."""
    folder = next(iter(_FOLDERS(value.get("folder"), "") or ()), "")
    return posixpath.dirname(folder) == posixpath.normpath(f"{home}/.muster/runs")


def parse_container(row: str, home: str = "") -> Container:
    """One line of `scripts/container_line.sh`; `home` is that of the user we are there.

    Raises BadAnswer for what no engine says, and for bad names; UsageError for one of ours that a newer Muster started.
    """
    value = _CONTAINER(fields.document(row, "a container"), "")
    labels, state = value["labels"], value["state"]
    status, node, ours = state["Status"], labels.get("muster.node"), is_ours(value, home)

    def number(name: str, instead: int, most: int) -> int:
        return fields.default(digits(0, most), instead)(labels.get(name), f"the label {name}")

    if ours:
        what = f"the container {value['name'].removeprefix('/')[:100]}"
        formats.refuse_newer(what, number("muster.format", 0, 1_000_000), formats.LABELS)
    return Container(
        run=run_id(labels.get("muster.run"), "the label muster.run"),
        node=node_name(node, "the label muster.node") if node else NodeName(""),
        place=number("muster.place", 0, 1 << 20),
        nodes=number("muster.nodes", 1, 1 << 20),
        name=container_name(value["name"].removeprefix("/")),
        status=status,
        code=state["ExitCode"] if status in ("exited", "dead") else None,
        port=number("muster.port", 0, 65535),
        command=labels.get("muster.command", "")[:300],
        started=state.get("StartedAt", ""),
        last_code=state["ExitCode"],
        secrets=tuple(filter(VARIABLE.fullmatch, labels.get("muster.secrets", "").split(","))),
        ours=ours,
        user=labels.get("muster.user", "")[:64] or "another user",
    )


def json_object(text: str) -> dict[str, Any]:
    """The JSON object that a text is; an empty one where it is none, or is too deep."""
    value = fields.optional(lambda said, what: fields.document(str(said), what))(text, "")
    return value if isinstance(value, dict) else {}
