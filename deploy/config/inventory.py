"""The hosts of a command and their job: from `--hosts a,b`, or as a cluster.toml has them.

The values are as somebody wrote them; ssh/ applies the user's SSH settings to them. A command gets a file's hosts from
cluster_file.load, which asks the user first.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..core.errors import UsageError
from ..core.formats import CLUSTER_FILE, refuse_newer
from . import toml
from . import values as values
from .toml import Table
from .values import Gpus, Mount, Secret

GPUS = '"auto", how many, or a list of which: [0, 1]'
KEEP = "an absolute path in the container, not / nor in /muster"
_SECRET = '"NAME" or { name = "NAME", file = "path" }, with as_file = true for a file; a value never stands here'
_EXAMPLE = "--hosts gpu-a,me@gpu-b:2222"


@dataclass(frozen=True)
class Host:
    """One machine. `address` is a name, an IP or an alias of the user's SSH settings; None means: as these say.

    `gateway` is a jump host, as in SSH's ProxyJump (several with commas). `gpus` is auto, a number, or a list.
    """

    name: str
    address: str
    port: int | None = None
    user: str | None = None
    gateway: str | None = None
    interface: str | None = None
    gpus: Gpus = "auto"
    image: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    mounts: tuple[Mount, ...] = ()

    @property
    def destination(self) -> str:
        """The destination in SSH's form: `user@address:port`."""
        address = f"[{self.address}]" if self.port and ":" in self.address else self.address
        return f"{self.user}@" * bool(self.user) + address + f":{self.port}" * bool(self.port)


@dataclass(frozen=True)
class Job:
    """What runs on all hosts. A host's own environment and mounts override these."""

    image: str | None = None
    dockerfile: Path | None = None
    folder: Path | None = None
    include: tuple[str, ...] = ()
    requirements: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    secrets: tuple[Secret, ...] = ()
    mounts: tuple[Mount, ...] = ()
    keep: tuple[str, ...] = ()
    processes: Literal["auto"] | int = "auto"
    shm_size: str | None = None
    user: int | None = None
    memory: str | None = None
    pids: int | None = None
    separate: bool = False
    gpus: Gpus = "auto"
    folder_limit: int | None = None
    max_hours: str = ""
    wait_lost_s: float | None = None
    min_nodes: str = ""
    spares: tuple[str, ...] = ()
    arbiter: str = ""
    on_end: str = ""
    env_files: tuple[Path, ...] = ()
    cache: bool = True
    script: str = ""
    args: str = ""
    restarts: int | None = None
    rank: str = ""
    observe: bool = True
    overlay: bool = False


@dataclass(frozen=True)
class Cluster:
    """The hosts in the user's order (the first is the master), and their job."""

    hosts: tuple[Host, ...]
    job: Job = Job()


def from_flag(flag: str) -> Cluster:
    """The hosts of `--hosts user@a:port,b`, each called by its address, or address-port if an address appears twice.

    Raises UsageError for an empty list, a host that it cannot read, and a host that appears twice.
    """
    parts = [part.strip() for part in flag.split(",")]
    if not any(parts):
        raise UsageError("no hosts", f"{_EXAMPLE}; or list them in cluster.toml")
    hosts = [_destination(part) for part in parts if part]
    shared = Counter(host.address for host in hosts)
    named = [
        replace(host, name=f"{host.name}-{host.port}") if shared[host.address] > 1 and host.port else host
        for host in hosts
    ]
    for name, times in Counter(host.name for host in named).items():
        if times > 1:
            raise UsageError(f"--hosts: {name} is named {times} times", "name each host once")
    return Cluster(tuple(named))


def from_file(path: Path) -> Cluster:
    """Everything in a cluster.toml, which nobody has allowed yet.

    Raises UsageError for its first error, with the path of the key.
    """
    top = toml.read(path)
    number = top.get("format", CLUSTER_FILE, values.whole(1, 1_000_000), "the number of the file's format")
    refuse_newer(str(path), number, CLUSTER_FILE)
    tables = top.tables("hosts")
    job_table = top.table("job")
    top.done()
    if not tables:
        top.refuse("no hosts", toml.SHAPE)
    hosts: dict[str, Host] = {}
    for table in tables:
        host = _host(table)
        if host.name in hosts:
            table.refuse(f"{host.name} is already the name of a host above", "give each host a name of its own", "name")
        hosts[host.name] = host
    job = _job(job_table)
    through = (_through(host, hosts) for host in hosts.values())
    return Cluster(tuple(replace(host, gpus=job.gpus) if host.gpus == "auto" else host for host in through), job)


def refuse_twins(hosts: Iterable[Host], endpoints: Mapping[str, tuple[str, int, str]]) -> None:
    """Raise UsageError if two hosts are the same machine.

    `endpoints`: by host name, the address, port and jump hosts after SSH's settings.
    """
    seen: dict[tuple[str, int, str], str] = {}
    for host in hosts:
        address, port, through = endpoints[host.name]
        first = seen.setdefault((address.lower(), port, through), host.name)
        if first != host.name:
            raise UsageError(f"{first} and {host.name} are one host: {address}:{port}", f"leave out {host.name}")


def _through(host: Host, hosts: Mapping[str, Host]) -> Host:
    """The host with a gateway that names a host of the file replaced by that host's destination."""
    if host.gateway is None:
        return host
    hops = [hosts[hop].destination if hop in hosts else hop for hop in host.gateway.split(",")]
    return replace(host, gateway=",".join(hops))


def _destination(text: str) -> Host:
    destination = values.destination(text)
    if destination is None:
        several = [part for part in re.split(r"[\s;]+", text) if values.destination(part)]
        hint = f"--hosts {','.join(several)}" if len(several) > 1 else f"user and port may be left out: {_EXAMPLE}"
        raise UsageError(f"--hosts: {text!r} is not a host", hint)
    return Host(name=destination.host, address=destination.host, port=destination.port, user=destination.user)


def _host(table: Table) -> Host:
    name = table.get("name", "", values.matching(values.NAME), "a name of letters, digits, dots, dashes (at most 63)")
    host = Host(
        name=name,
        address=table.get("address", name, values.host, "a host name or an IP"),
        port=table.get("port", None, values.whole(1, 65535), "a port number"),
        user=table.get("user", None, values.user, "a user name"),
        gateway=table.get("gateway", None, values.gateway, 'a jump host: "user@a:port", several with commas'),
        interface=table.get("interface", None, values.word, "the name of a network interface"),
        gpus=table.get("gpus", "auto", values.gpus, GPUS),
        image=table.get("image", None, values.word, "the name of an image"),
        environment=_environment(table),
        mounts=table.items("mounts", values.mount, values.MOUNT),
    )
    table.done()
    if not name:
        table.refuse("no name", 'a host needs a name, which may be its address: name = "a"')
    return host


def _job(table: Table) -> Job:
    here = table.path.parent
    job = Job(
        image=table.get("image", None, values.word, "the name of an image"),
        dockerfile=table.get("dockerfile", None, values.path_from(here), "the path of a Dockerfile"),
        folder=table.get("folder", None, values.path_from(here), "the path of a folder"),
        include=table.items("include", values.inside, 'a path in the folder: "data/val.bin"'),
        requirements=table.get("requirements", "", values.requirements, 'a path in the folder, or "no"'),
        environment=_environment(table),
        secrets=table.items("secrets", values.secret_from(here), _SECRET, secret=True),
        mounts=table.items("mounts", values.mount, values.MOUNT),
        keep=table.items("keep", values.keep, KEEP),
        processes=table.get("processes", "auto", values.processes, '"auto" or a number from 1'),
        user=table.get("user", None, values.whole(1, (1 << 31) - 2), "a user's number, from 1"),
        shm_size=table.get("shm_size", None, values.matching(values.SIZE), 'a size such as "16g"'),
        memory=table.get("memory", None, values.matching(values.SIZE), 'a size such as "200g"'),
        pids=table.get("pids", None, values.whole(64, 4194304), "a number from 64 to 4194304"),
        separate=table.get("separate", False, values.yes_or_no, "true or false"),
        overlay=table.get("overlay", False, values.yes_or_no, "true or false"),
        gpus=table.get("gpus", "auto", values.gpus, GPUS),
        env_files=_env_files(table),
        cache=table.get("cache", True, values.yes_or_no, "true or false"),
        script=table.get("script", "", values.matching(values.LINE), 'a command of one line: "train.py --lr 3e-4"'),
        args=table.get("args", "", values.matching(values.LINE), "options of Muster's own trainer, in one string"),
        restarts=table.get("restarts", None, values.whole(0, 9999), "a number from 0 to 9999"),
        rank=table.get("rank", "", values.scalar, 'a rank, several with commas, or "all"'),
        observe=table.get("observe", True, values.yes_or_no, "true or false"),
        folder_limit=table.get("folder_limit", None, values.size, 'a size such as "4g"'),
        max_hours=table.get("max_hours", "", values.hours, "a number of hours, above 0"),
        wait_lost_s=table.get("wait_lost", None, values.wait, 'a time with its unit: "90s", "10m" or "1h"'),
        min_nodes=str(table.get("min_nodes", 0, values.whole(1, 9999), "a number of nodes, from 1") or ""),
        on_end=table.get("on_end", "", values.scalar, "a command of one line, or a URL"),
    )
    table.done()
    if job.script and job.args:
        table.refuse("there is a script too", "args are options of Muster's own trainer", "args")
    if job.image and job.dockerfile:
        table.refuse("there is an image too", "keep either image or dockerfile", "dockerfile")
    if job.dockerfile and not os.path.isfile(job.dockerfile):
        table.refuse(f"there is no file {job.dockerfile}", "", "dockerfile")
    if job.folder and not os.path.isdir(job.folder):
        table.refuse(f"there is no folder {job.folder}", "", "folder")
    return job


def _env_files(table: Table) -> tuple[Path, ...]:
    """`env_file`: one path or several."""
    here, wanted = values.path_from(table.path.parent), 'the path of a file of variables: ".env"'

    def check(value: object) -> tuple[Path, ...] | None:
        paths = [here(item) for item in (value if isinstance(value, list) else [value])]
        return tuple(path for path in paths if path) if all(paths) else None

    none: tuple[Path, ...] = ()
    files = table.get("env_file", none, check, wanted)
    for path in files:
        if not os.path.isfile(path):
            table.refuse(f"there is no file {path}", "", "env_file")
    return files


def _environment(table: Table) -> dict[str, str]:
    inner = table.table("environment")
    for name in inner.names:
        if not values.VARIABLE.fullmatch(name):
            inner.refuse("not the name of a variable", "letters, digits and _, no digit first", name)
    return {name: inner.get(name, "", values.scalar, "a string of one line or a number") for name in inner.names}
