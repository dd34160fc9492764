"""What a host is, as frozen values, and the readers of what it says. Pure.

host_observe.py asks (`host_commands.look`), deploy_plan.py and deploy_spec.py decide by it. A host answers in lines: a
word, a blank, and the value; some values are JSON. Lines with other words are passed over.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.errors import DeployError
from deploy.host_commands import SILENT

# What container engines and virtual machines add to a host: no peer is reached through them.
_INNER = ("lo", "docker", "br-", "veth", "cni", "virbr", "flannel", "podman", "nerdctl")
_LISTEN = "0A"
# As sh, bash and zsh say it. A context or a file may be "not found" as well.
_NO_DOCKER = re.compile(r"docker: (command )?not found|command not found: docker")


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
    """A container of a run, known by its labels; `place` is the node's place in the run, `code` its exit code.

    `code` is None while it runs or is about to run again; `last_code` is that of its last life. `started` is when its
    engine started it last, by the host's clock.
    """

    run: str
    node: str
    place: int
    nodes: int
    name: str
    status: str
    code: int | None
    port: int
    command: str = ""
    started: str = ""
    last_code: int = 0

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
    runs: frozenset[str]
    clock_ahead_s: float
    home_writable: bool = True
    room: int | None = None
    kernel: tuple[str, ...] = ()


def parse(said: str, now: float) -> HostFacts:
    """Read the answer to `host_commands.look`, heard at `now` (unix seconds). Raises DeployError without an engine."""
    rows = _rows(said)

    def one(word: str, default: str = "") -> str:
        return rows.get(word, [default])[0]

    engine = json_object(one("engine"))
    version = str((engine.get("Server") or {}).get("Version", ""))
    if not version:
        raise engine_fault(one("engine-said"))
    ids = [*one("ids").split(), "0", "0"]
    return HostFacts(
        home=one("home"),
        uid=_number(ids[0]),
        gid=_number(ids[1]),
        architecture=one("arch"),
        cores=_number(one("cores"), 1),
        memory=_number(one("memory")) * 1024,
        docker=version,
        free=_number(one("free")) * 1024 if one("free").isdigit() else None,
        open_files=_number(one("files").partition(" ")[0]) or None,
        rdma="rdma" in rows,
        gpus=tuple(gpu for row in rows.get("gpu", ()) if (gpu := parse_gpu(row))),
        addresses=parse_addresses(one("addresses", "[]")),
        reached_at=[*one("ssh").split(), "", "", ""][2],
        listening=parse_listening(rows.get("socket", ())),
        containers=tuple(parse_container(row) for row in rows.get("container", ())),
        runs=frozenset(rows.get("run", ())),
        clock_ahead_s=round(float(one("time")) - now, 1) if one("time").replace(".", "", 1).isdigit() else 0.0,
        home_writable="home-readonly" not in rows,
        room=_number(one("room")) * 1024 if one("room").isdigit() else None,
        kernel=tuple(rows.get("kernel", ())),
    )


def engine_fault(said: str) -> DeployError:
    """Why a host has no engine that answers us, from the last words of its `docker version`."""
    low = said.lower()
    if "permission denied" in low:
        return DeployError(
            "permission denied on the Docker socket", "sudo usermod -aG docker $USER there, then log in anew"
        )
    if _NO_DOCKER.search(low) or not said:
        return DeployError("Docker is not installed", "fab bootstrap --hosts ... installs it")
    word = "restart" if SILENT in said else "start"
    return DeployError(f"the Docker engine does not answer: {said}", f"{word} it there: sudo systemctl {word} docker")


def parse_gpu(row: str) -> Gpu | None:
    """`0, NVIDIA A100-SXM4-80GB, 81920 MiB` as `nvidia-smi --query-gpu=index,name,memory.total` writes it."""
    cells = [cell.strip() for cell in row.split(",")]
    if len(cells) != 3 or not cells[0].isdigit():
        return None
    return Gpu(int(cells[0]), cells[1], _number(cells[2].partition(" ")[0]))


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Addresses that a peer may reach, from `ip -j addr`: no loopback, no link-local, no container network."""
    found = []
    for link in _list(text):
        name = str(link.get("ifname", ""))
        if name.startswith(_INNER):
            continue
        for entry in link.get("addr_info", ()):
            if entry.get("scope") == "global" and not entry.get("deprecated"):
                found.append(Address(name, str(entry["local"]), int(entry["prefixlen"])))
    return tuple(found)


def parse_route(text: str) -> Route | None:
    """The answer of `ip -j route get`; None when there is no way."""
    for route in _list(text):
        if route.get("dev") and route.get("prefsrc"):
            return Route(str(route["dev"]), str(route["prefsrc"]))
    return None


def parse_listening(rows: Sequence[str]) -> frozenset[int]:
    """Ports somebody listens on, from the lines of /proc/net/tcp and tcp6: `0: 0100007F:1F90 00000000:0000 0A ...`."""
    cells = [row.split() for row in rows]
    return frozenset(int(row[1].rpartition(":")[2], 16) for row in cells if len(row) > 3 and row[3] == _LISTEN)


def parse_container(row: str) -> Container:
    """One line of `host_commands.CONTAINER_LINE`."""
    value = json_object(row)
    labels, state = value.get("labels") or {}, value.get("state") or {}
    status = str(state.get("Status", ""))
    return Container(
        run=str(labels.get("muster.run", "")),
        node=str(labels.get("muster.node", "")),
        place=_number(str(labels.get("muster.place", ""))),
        nodes=_number(str(labels.get("muster.nodes", "")), 1),
        name=str(value.get("name", "")).lstrip("/"),
        status=status,
        code=int(state.get("ExitCode", 1)) if status in ("exited", "dead") else None,
        port=_number(str(labels.get("muster.port", ""))),
        command=str(labels.get("muster.command", "")),
        started=str(state.get("StartedAt", "")),
        last_code=int(state.get("ExitCode", 0)),
    )


def _rows(said: str) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    for line in said.splitlines():
        word, _, value = line.partition(" ")
        rows.setdefault(word, []).append(value.strip())
    return rows


def json_object(text: str) -> dict[str, Any]:
    """The JSON object that a text is; an empty one where it is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(text: str, default: int = 0) -> int:
    return int(text) if text.isdigit() else default


def _list(text: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(text)
    except ValueError:
        return []
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
