"""The facts of a host, as frozen values, and the readers of its answers. Pure.

hosts/start/observe.py asks for them (`commands.look`); hosts/start/plan.py and hosts/node/container.py use them. A
host's answer consists of lines with a word, a blank and a value; some values are JSON. The readers skip lines that
begin with other words.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..causes import docker_faults
from ..core import fields, formats
from ..core.errors import BadAnswer
from ..core.fields import Reader, array, decimal, digits, flag, interface, record, text, whole
from ..core.names import ContainerName, NodeName, RunId, container_name, node_name, run_id, run_ids
from ..engine.engine import Container as Seen
from ..engine.engine import read_container
from ..job.values import SECRET_FILE
from .commands import RUN_IN_CONTAINER
from .gpus import GpuUse, parse_gpu

# Prefixes of interfaces that container engines and virtual machines add to a host: they lead to no peer.
INNER = ("docker", "br-", "veth", "cni", "virbr", "flannel", "podman", "nerdctl", "cali", "lxc", "lxd")
_LISTEN, _RANKS = "0A", "PET_NPROC_PER_NODE"
_SOCKET = re.compile(r"[0-9A-Fa-f]{8,32}:([0-9A-Fa-f]{4})")
_MOST_ID, _MOST_KERNEL = (1 << 32) - 1, 500
# The fields used from `docker version`, `ip -j addr` and `ip -j route get`. Old versions of ip also write `{}`.
_VERSION = record({}, {"Server": fields.either(fields.nothing, record({"Version": text(100)}))})
_ENTRY = record(
    {},
    {
        "scope": text(20),
        "local": fields.address,
        "prefixlen": whole(128),
        "deprecated": flag,
        "family": text(20),
        "valid_life_time": whole(1 << 32),
    },
)
# The lifetime that the kernel reports for a permanent address.
_FOREVER = (1 << 32) - 1
_LINKS = array(record({}, {"ifname": interface, "addr_info": array(_ENTRY)}), 10_000)
_ROUTES = array(record({}, {"dev": interface, "prefsrc": fields.address}), 100)

# Text fields: the word that begins their line, and the most characters.
_WORDS = {
    "user": ("user", 64),
    "network": ("network", 100),
    "claims_closed": ("claims-closed", 4096),
    "closed": ("home-readonly", 4096),
    "engine_at": ("engine-at", 500),
    "iproute_words": ("no-iproute2", 500),
    "iproute_at": ("ip", 4096),
    "machine": ("machine", 400),
    "no_timer": ("no-timer", 500),
}

T = TypeVar("T")


@dataclass(frozen=True)
class Address:
    """An address of a host, with its interface and the length of its network's prefix.

    `ends_s`: in how many seconds the kernel removes it; None: it stays.
    """

    interface: str
    address: str
    prefix: int
    ends_s: int | None = None

    def shares_network(self, other: Address) -> bool:
        """Whether a packet reaches the other address without a gateway."""
        network = ipaddress.ip_interface(f"{self.address}/{self.prefix}").network
        return ipaddress.ip_address(other.address) in network


@dataclass(frozen=True)
class Route:
    """The route to a peer: the interface, and the source address of the packets."""

    interface: str
    source: str


@dataclass(frozen=True)
class Container:
    """A container of a run, read from its labels; `place` is the node's place in the run (from 0).

    A container without a `node` was made by `make up`. `ours`: its run folder is in the login user's home; otherwise
    `user` is its owner. `code`: the exit code, None while it runs or will restart; `last_code`: the exit code of its
    last end. `started`: the last start, by the host's clock. `secrets`: the names of its secrets. `least`: as in Work.
    `ranks`: how many ranks it has, if its variables were read from the engine.
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
    least: int = 0
    ranks: int = 1
    id: str = ""

    @property
    def script(self) -> bool:
        """Whether it runs a user's script: the trainer's own arguments are all options."""
        return bool(self.command) and not self.command.startswith("--")


@dataclass(frozen=True)
class HostFacts:
    """The facts of a host. `memory`, `free` (on Docker's disk) and `room` (for run folders) are bytes.

    `open_files`: the most that its engine can grant; None if there is no limit, or it is unknown. `runs`: the ids of
    its run folders. `clock_ahead_s`: compared with this machine's clock. `kernel`: lines of the GPU driver in the
    kernel's log, if the login may read it. `machine`: identifies the machine: the same for all its users, and different
    on every other machine. `picked`: `gpus` are those that this deploy gets, not all. `candidates`: the GPUs that it
    may get, if it waits. `driver`, `capabilities`: the GPUs' driver version and compute capabilities; empty: unknown.
    `called_at`: the host's address as this machine dials it, which address translation may change on the way to
    `reached_at`. `closed`: the part of the path to the runs that the login cannot write to; `closed_why`: the system's
    message about it; empty: none. `inodes`: how many are left on the disk of `room`. `claims_closed`: `ls` output for
    /var/tmp, if others may change claims there. `claims_full`: its disk is full. `no_timer`: why a login cannot wait
    for a lock; empty: it can. `network`: the login's network namespace. `lacks`: commands that Muster needs on every
    host and that are missing. `engine_at`: the setting that sends the Docker client to an engine other than the host's,
    as in DockerFault; empty: none. `bare`: the host has no engine, and its containers are processes of the login
    (engine/bare/). `iproute`: whether `ip` lists the addresses; if not, `iproute_words` is its output; `iproute_at`:
    the path of `ip`.
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
    gpus: tuple[GpuUse, ...]
    addresses: tuple[Address, ...]
    reached_at: str
    listening: frozenset[int]
    containers: tuple[Container, ...]
    runs: frozenset[RunId]
    clock_ahead_s: float
    home_writable: bool = True
    claims_closed: str = ""
    claims_full: bool = False
    no_timer: str = ""
    network: str = ""
    iproute: bool = True
    iproute_words: str = ""
    iproute_at: str = ""
    lacks: tuple[str, ...] = ()
    user: str = ""
    room: int | None = None
    kernel: tuple[str, ...] = ()
    machine: str = ""
    picked: bool = False
    candidates: tuple[GpuUse, ...] = ()
    driver: tuple[int, ...] = ()
    capabilities: tuple[tuple[int, int], ...] = ()
    called_at: str = ""
    closed: str = ""
    engine_at: str = ""
    closed_why: str = ""
    inodes: int | None = None
    bare: bool = False


def is_bare(answer: str) -> bool:
    """Whether the answer to `commands.look` reports no engine, or only one that Muster brought."""
    rows = fields.rows(answer)
    return "no-engine" in rows or "bare" in rows


def bare_version(answer: str) -> str:
    """The version of a bare host's engine; empty for a host with another engine."""
    return fields.default(fields.text(100), "")(fields.first(fields.rows(answer), "bare"), "bare")


def parse(answer: str, now: float) -> HostFacts:
    """Read the answer to `commands.look`, which arrived at `now` (unix seconds).

    Raises DeployError if the engine does not answer, BadAnswer for a field that cannot be read.
    """
    rows = fields.rows(answer)

    def field(word: str, reader: Reader[T], instead: T, *blank: str) -> T:
        return fields.default(reader, instead, *blank)(fields.first(rows, word), word)

    engine = _engine(rows)
    words: dict[str, Any] = {name: field(word, fields.words(most), "") for name, (word, most) in _WORDS.items()}
    ids = [*fields.first(rows, "ids").split(), "0", "0"]
    time_there = field("time", _time, None)
    return HostFacts(
        home=field("home", fields.text(4096, r"/[^\x00-\x1f\x7f]*"), ""),
        uid=digits(_MOST_ID)(ids[0], "ids"),
        gid=digits(_MOST_ID)(ids[1], "ids"),
        architecture=field("arch", fields.text(32, r"[A-Za-z0-9_.-]*"), ""),
        cores=field("cores", digits(1 << 20, least=1), 1),
        memory=field("memory", _bytes, 0),
        docker=engine,
        free=field("free", _bytes, None, "-"),
        open_files=_open_files(field("files", fields.text(200), "")),
        rdma="rdma" in rows,
        driver=min((numbers for row in rows.get("driver_version", ()) if (numbers := _version(row))), default=()),
        capabilities=tuple(sorted({(n[0], n[1]) for row in rows.get("compute_cap", ()) if (n := _version(row))})),
        gpus=tuple(filter(None, map(parse_gpu, rows.get("gpu", ())))),
        addresses=parse_addresses(field("addresses", fields.text(fields.MOST_DOCUMENT), "") or "[]"),
        reached_at=[*field("ssh", fields.text(300), "").split(), "", "", ""][2],
        listening=parse_listening(rows.get("socket", ())),
        containers=containers(map(parse_container, rows.get("container", ())), fields.first(rows, "home")),
        runs=run_ids(rows.get("run", ())),
        clock_ahead_s=0.0 if time_there is None else round(time_there - now, 1),
        home_writable="home-readonly" not in rows,
        bare="bare" in rows,
        claims_full="claims-full" in rows,
        iproute="no-iproute2" not in rows,
        lacks=tuple(field("lacks", fields.text(200, "[a-z0-9 ]*"), "").split()),
        room=field("room", _bytes, None, "-"),
        inodes=field("inodes", digits(1 << 62), None),
        closed_why=field("home-words", fields.words(500), "").rpartition(": ")[2],
        kernel=tuple(row[:_MOST_KERNEL] for row in rows.get("kernel", ())[:100]),
        **words,
    )


def _version(text: str) -> tuple[int, ...]:
    """The numbers of a version; empty for any other text."""
    return tuple(map(int, text.split("."))) if re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,5}){1,3}", text.strip()) else ()


def _engine(rows: Mapping[str, list[str]]) -> str:
    """The engine's version. Raises DockerFault if the engine does not answer."""
    version = fields.first(rows, "engine")
    if not version:
        at = fields.default(fields.words(500), "")(fields.first(rows, "engine-at"), "engine-at")
        raise docker_faults.unanswered(fields.first(rows, "engine-error")[:_MOST_KERNEL], at=at)
    server = _VERSION(fields.document(version, "docker version"), "docker version").get("Server")
    if not server:
        raise docker_faults.unanswered(version[:_MOST_KERNEL])
    return str(server["Version"])


def _time(value: object, what: str) -> float | None:
    """Read the output of `date +%s.%N`, also from a `date` that does not know %N."""
    return decimal()(re.sub(r"\.?%?N$", "", value) if isinstance(value, str) else value, what)


def _open_files(limit: str) -> int | None:
    """The first word of a line of /proc/<pid>/limits; None if there is no limit."""
    word = limit.partition(" ")[0]
    return None if word in ("", "unlimited") else digits()(word, "files") or None


def _bytes(kilobytes: object, what: str) -> int:
    return digits(1 << 50)(kilobytes, what) * 1024


def parse_addresses(text: str) -> tuple[Address, ...]:
    """The addresses that a peer may reach, from `ip -j addr`: no loopback, link-local or container network.

    Raises BadAnswer.
    """
    addresses = []
    for link in _LINKS(fields.document(text, "addresses"), "addresses"):
        name = link.get("ifname", "")
        if name == "lo" or name.startswith((*INNER, "muster")):
            continue
        for entry in link.get("addr_info", ()):
            if entry.get("scope") == "global" and not entry.get("deprecated") and "local" in entry:
                addresses.append(_address(name, entry))
    return tuple(addresses)


def _address(interface: str, entry: Mapping[str, Any]) -> Address:
    local, prefix = entry["local"], entry.get("prefixlen", 0)
    if ":" not in local and prefix > 32:
        raise BadAnswer(f"the prefix of {local}", "0 to 32", prefix)
    lasts = entry.get("valid_life_time", _FOREVER)
    return Address(interface, local, prefix, None if lasts == _FOREVER else lasts)


def parse_route(text: str) -> Route | None:
    """Read the answer of `ip -j route get`; None if there is no route. Raises BadAnswer."""
    # Without a route, `ip` prints a message instead of JSON.
    for route in _ROUTES(fields.document(text, "the route"), "the route") if text.startswith("[") else ():
        if route.get("dev") and route.get("prefsrc"):
            return Route(route["dev"], route["prefsrc"])
    return None


def parse_listening(rows: Sequence[str]) -> frozenset[int]:
    """The ports in use, from the lines of /proc/net/tcp and tcp6: `0: 0100007F:1F90 00000000:0000 0A ...`.

    Raises BadAnswer.
    """
    ports = set()
    for row in rows:
        cells = row.split(None, 4)
        if len(cells) > 3 and cells[3] == _LISTEN:
            if not (port := _SOCKET.fullmatch(cells[1])):
                raise BadAnswer("a socket", "an address and a port in hexadecimal", cells[1])
            ports.add(int(port[1], 16))
    return frozenset(ports)


def containers(seen: Iterable[Seen], home: str) -> tuple[Container, ...]:
    """The containers of runs, as an engine describes them; `home`: the login user's home.

    Raises BadAnswer for a container of ours that cannot be read. Other users may label theirs as they like.
    """
    of_runs = []
    for each in seen:
        try:
            of_runs.append(container_of(each, home))
        except BadAnswer:
            if is_ours(each, home):
                raise
    return tuple(of_runs)


def is_ours(seen: Seen, home: str, run: str = "") -> bool:
    """Whether a container's run folder is in that home. Labels prove nothing: an image may carry any label."""
    folder, runs = seen.mounts.get(RUN_IN_CONTAINER, ""), posixpath.normpath(f"{home}/.muster/runs")
    return folder == f"{runs}/{run}" if run else posixpath.dirname(folder) == runs


def parse_container(row: str) -> Seen:
    """Read one line of `scripts/container_line.sh`. Raises BadAnswer for text that no engine writes."""
    return read_container(fields.document(row, "a container"))


def container_of(seen: Seen, home: str = "") -> Container:
    """The container of a run, from the engine's description; `home`: the login user's home.

    Raises BadAnswer for invalid names, UsageError if it is ours and a newer Muster made it.
    """
    labels, node = seen.labels, seen.labels.get("muster.node")
    own = is_ours(seen, home, labels.get("muster.run", ""))
    variables = dict(line.partition("=")[::2] for line in seen.variables)

    def number(name: str, instead: int, most: int) -> int:
        return fields.default(digits(most), instead)(labels.get(name), f"the label {name}")

    if own:
        formats.refuse_newer(f"the container {seen.name[:100]}", number("muster.format", 0, 1_000_000), formats.LABELS)
    return Container(
        run=run_id(labels.get("muster.run"), "the label muster.run"),
        node=node_name(node, "the label muster.node") if node else NodeName(""),
        place=number("muster.place", 0, 1 << 20),
        nodes=number("muster.nodes", 1, 1 << 20),
        name=container_name(seen.name),
        status=seen.status,
        code=seen.code or 0 if seen.status in ("exited", "dead") else None,
        port=number("muster.port", 0, 65535),
        command=labels.get("muster.command", "")[:300],
        started=seen.started,
        last_code=seen.code or 0,
        secrets=tuple(filter(SECRET_FILE.fullmatch, labels.get("muster.secrets", "").split(","))),
        ours=own,
        user=labels.get("muster.user", "")[:64] or "another user",
        least=number("muster.least", 0, 1 << 20),
        id=seen.id,
        ranks=fields.default(digits(65536, least=1), 1)(variables.get(_RANKS), _RANKS),
    )
