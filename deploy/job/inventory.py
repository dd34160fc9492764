"""Hosts as the user wrote them, in `--hosts a,b` or in a cluster.toml; door/ adds the user's SSH settings."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.errors import UsageError
from . import values as values
from .options import FLAG
from .values import Destination, Gpus, Mount

_EXAMPLE = f"{FLAG.hosts} gpu-a,me@gpu-b:2222"


@dataclass(frozen=True)
class Host:
    """One machine. `address` is a name, an IP or an alias of the user's SSH settings.

    None leaves a field to these settings. `gateway` is a jump host, as in SSH's ProxyJump (several with commas).
    `gpus` is auto, a number, or a list; `visible` is the run's CUDA_VISIBLE_DEVICES for this host.
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
    visible: str | None = None

    @property
    def destination(self) -> str:
        """The destination in SSH's form: `user@address:port`."""
        address = f"[{self.address}]" if self.port and ":" in self.address else self.address
        return f"{self.user}@" * bool(self.user) + address + f":{self.port}" * bool(self.port)


def hosts_of_flag(flag: str) -> tuple[Host, ...]:
    """The hosts of `--hosts user@a:port,b`. A host's name is its address, or address-port if an address appears twice.

    Raises UsageError for an empty list, for text that is not a host, and for a host that appears twice.
    """
    parts = [part.strip() for part in flag.split(",")]
    if not any(parts):
        raise UsageError("no hosts", f"{_EXAMPLE}; or list them in cluster.toml")
    hosts, twin = named_hosts([_destination(part) for part in parts if part])
    if twin:
        raise UsageError(f"{FLAG.hosts}: {twin} is named more than once", "name each host once")
    return hosts


def typed_hosts(hosts: Iterable[Host]) -> str:
    """The hosts as the user types them for --hosts, with user and port, which a host's name lacks."""
    return ",".join(host.destination for host in hosts)


def named_hosts(destinations: Sequence[Destination]) -> tuple[tuple[Host, ...], str]:
    """The hosts for these destinations, and a name that two of them share; empty if all names differ."""
    shared = Counter(each.host for each in destinations)
    hosts = tuple(
        Host(f"{each.host}-{each.port}" if shared[each.host] > 1 and each.port else each.host,
             address=each.host, port=each.port, user=each.user)
        for each in destinations
    )  # fmt: skip
    name, times = Counter(host.name for host in hosts).most_common(1)[0] if hosts else ("", 0)
    return hosts, name if times > 1 else ""


def refuse_twins(hosts: Iterable[Host], endpoints: Mapping[str, tuple[str, int, str]]) -> None:
    """Raise UsageError if two hosts are the same machine.

    `endpoints`: by host name, the address, port and jump hosts with the user's SSH settings applied.
    """
    seen: dict[tuple[str, int, str], str] = {}
    for host in hosts:
        address, port, through = endpoints[host.name]
        first = seen.setdefault((address.lower(), port, through), host.name)
        if first != host.name:
            raise UsageError(f"{first} and {host.name} are the same host: {address}:{port}", f"leave out {host.name}")


def _destination(text: str) -> Destination:
    if text.endswith(".txt") and os.path.isfile(text):
        raise UsageError(f"{FLAG.hosts}: {text} is a file", f'{FLAG.hosts} "$(paste -sd, {shlex.quote(text)})"')
    if text.endswith((".py", ".sh")) and os.path.isfile(text):
        hint = f"is a variable before it empty? {FLAG.hosts} gpu-a,gpu-b {shlex.quote(text)}"
        raise UsageError(f"{FLAG.hosts}: {text} is a script, not a host", hint)
    destination = values.destination(text)
    if destination is None:
        several = [part for part in re.split(r"[\s;]+", text) if values.destination(part)]
        hint = f"{FLAG.hosts} {','.join(several)}" if len(several) > 1 else f"user and port may be left out: {_EXAMPLE}"
        if re.search(r"[*?{}]|[^@]\[", text):
            hint = f"a pattern names no host; write each: {_EXAMPLE}"
        raise UsageError(f"{FLAG.hosts}: {text!r} is not a host", hint)
    return destination
