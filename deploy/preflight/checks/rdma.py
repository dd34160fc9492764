"""InfiniBand and RoCE as NCCL will see them: devices, active ports, addresses, access from the container. Pure.

NCCL uses the active ports with link layer InfiniBand or Ethernet that NCCL_IB_HCA allows. A host without such a port
uses sockets, which are slow, and which cannot connect to peers that use RDMA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...causes.finding import FAULT, WARNING, Finding, find
from ...core.text import binary, listed, subject
from ..answers import Answers
from ..request import Facts
from ..verdict import odd_ones

LAYERS = ("InfiniBand", "Ethernet")
IPV4 = re.compile(r"^0000:0000:0000:0000:0000:ffff:")
MEMLOCK_GOOD = 64 << 20
MISMATCH = "a hang in NCCL's init, or `NET/Socket` where peers say `NET/IB`"


@dataclass(frozen=True)
class Port:
    """One port. `rate` is in Gbit/s, `gids` are rows of index, address, type and network interface."""

    device: str
    number: str
    state: str
    layer: str
    rate: float
    gids: tuple[tuple[Any, ...], ...]

    @property
    def active(self) -> bool:
        """Whether NCCL would use it."""
        return self.state == "ACTIVE"

    @property
    def name(self) -> str:
        """The port's name in NCCL_IB_HCA."""
        return f"{self.device}:{self.number}"


def ports(facts: Facts) -> list[Port]:
    """Return a host's ports of the kinds that NCCL knows; a cloud's own kind needs a plugin."""
    listed, rdma = [], facts.get("rdma") or {}
    for device, numbers in rdma.items() if isinstance(rdma, Mapping) else ():
        for number, port in numbers.items():
            state, rate = port["state"].partition(":")[2].strip(), re.match(r"[0-9]+(\.[0-9]+)?", port["rate"])
            gids = tuple(map(tuple, port["gids"]))
            listed.append(Port(device, number, state, port["link_layer"], float(rate[0]) if rate else 0.0, gids))
    return [port for port in listed if port.layer in LAYERS]


def is_allowed(port: Port, asked: str) -> bool:
    """Whether NCCL_IB_HCA (`mlx5`, `=mlx5_0:1,mlx5_1`, `^mlx5_2`) allows NCCL to use a port."""
    without, exact = asked.startswith("^"), asked.lstrip("^").startswith("=")
    words = (word.partition(":") for word in asked.lstrip("^=").split(",") if word)
    hit = any(
        (port.device == device if exact else port.device.startswith(device)) and number in ("", port.number)
        for device, _, number in words
    )
    return hit != without


def check(answers: Answers) -> Iterator[Finding]:
    """Yield findings if the run uses NCCL and any host may use RDMA."""
    hosts = [host for host in answers.facts if _setting(answers, host, "NCCL_IB_DISABLE") in ("", "0")]
    if answers.request.backend != "nccl" or not hosts:
        return
    every = {host: ports(answers.facts[host]) for host in hosts}
    asked = {host: _setting(answers, host, "NCCL_IB_HCA") for host in hosts}
    mine = {host: [port for port in every[host] if not asked[host] or is_allowed(port, asked[host])] for host in hosts}
    up = {host: [port for port in mine[host] if port.active] for host in hosts}
    usable = {host: up[host] if answers.facts[host].get("rdma_devices") else [] for host in hosts}
    some = any(usable.values())
    for host in hosts:
        level = FAULT if some or _setting(answers, host, "NCCL_NET") == "IB" else WARNING
        if every[host] and not usable[host]:
            yield _none(host, answers.facts[host], every[host], mine[host], asked[host], level)
        elif not every[host] and not some and level == FAULT:
            yield find("rdma-device", host, "NCCL_NET=IB, but it has no RDMA device", "unset NCCL_NET there")
    off = tuple(host for host in answers.facts if host not in hosts)
    if off and some:
        yield find(
            "rdma-differs",
            off,
            f"{subject(off, 'has', 'have')} NCCL_IB_DISABLE=1, but the others use RDMA",
            "set it to one value on all hosts",
        )
    lacking = tuple(host for host in hosts if not every[host])
    if lacking and some:
        yield find(
            "rdma-differs",
            lacking,
            f"{subject(lacking, 'has', 'have')} no RDMA device, but the others have one",
            f"on {listed(lacking)}: lspci | grep -i mellanox; modprobe mlx5_ib; or NCCL_IB_DISABLE=1 on all",
        )
    usable = {host: host_ports for host, host_ports in usable.items() if host_ports}
    yield from _alike(usable)
    for host, host_ports in usable.items():
        yield from _memlock(host, answers)
        yield from _library(host, answers.facts[host])
        yield from _addresses(host, host_ports, _setting(answers, host, "NCCL_IB_GID_INDEX"))
    yield from _types(usable, answers)


def _library(host: str, facts: Facts) -> Iterator[Finding]:
    """Yield a finding if the image lacks libibverbs, or its provider for the cards: NCCL then silently uses sockets."""
    if facts.get("container") and facts.get("verbs") in (-1, 0):
        lacking = "libibverbs" if facts["verbs"] == -1 else "a libibverbs provider for the host's cards"
        yield find(
            "rdma-library", host, f"it has RDMA, but the image lacks {lacking}: NCCL will use sockets", level=WARNING
        )


def _memlock(host: str, answers: Answers) -> Iterator[Finding]:
    facts = answers.facts[host]
    locked = facts["resources"]["memlock"][0]
    # Outside a container, the fact is the login's limit; `muster deploy` sets another one for its containers.
    given = answers.request.style == "muster" and not facts.get("container")
    if 0 <= locked < MEMLOCK_GOOD and not given:
        yield find(
            "memlock",
            host,
            f"RDMA needs locked memory, but only {binary(locked)} of it are allowed",
            "docker run --ulimit memlock=-1",
        )


def _setting(answers: Answers, host: str, name: str) -> str:
    return str({**answers.facts[host]["environment"], **answers.request.environment}.get(name, ""))


def _none(host: str, facts: Facts, every: list[Port], mine: list[Port], asked: str, level: str) -> Finding:
    """Return the finding that explains why NCCL cannot use a host's devices."""
    shown = [f"{port.name} {port.state or 'unknown'} ({port.layer})" for port in every[:4]]
    if not mine:
        return find(
            "rdma-device",
            host,
            f"NCCL_IB_HCA={asked} names none of its devices ({listed(port.device for port in every)})",
            level=level,
            evidence=shown,
            symptom=MISMATCH,
        )
    if not any(port.active for port in mine):
        return find(
            "rdma-down",
            host,
            f"no RDMA port is active: {listed(f'{port.name} is {port.state}' for port in mine)}",
            level=level,
            evidence=shown,
        )
    inside = bool(facts.get("container"))
    fix = "docker run --device /dev/infiniband --ulimit memlock=-1" if inside else f"on {host}: sudo modprobe ib_uverbs"
    return find(
        "rdma-hidden",
        host,
        f"has RDMA devices, but /dev/infiniband does not exist{' in the container' if inside else ''}",
        fix,
        level,
        evidence=shown,
    )


def _alike(usable: dict[str, list[Port]]) -> Iterator[Finding]:
    """Yield findings about incompatible link layers, and about hosts with fewer or slower ports than their peers."""
    layers = {host: "/".join(sorted({port.layer for port in host_ports})) for host, host_ports in usable.items()}
    power = {host: round(sum(port.rate for port in host_ports)) for host, host_ports in usable.items()}
    shown = [
        f"{host}: {layers[host]}, {len(host_ports)} ports, {power[host]} Gbit/s" for host, host_ports in usable.items()
    ]
    if len(usable) > 1 and not set.intersection(*(set(value.split("/")) for value in layers.values())):
        odd = odd_ones(layers)
        yield find(
            "rdma-differs",
            odd,
            f"{subject(odd, 'has', 'have')} a different link layer from the others",
            "use NCCL_IB_HCA to choose the same network on all hosts",
            evidence=shown,
        )
    elif len(set(power.values())) > 1:
        odd = tuple(host for host in power if power[host] < max(power.values()))
        yield find(
            "rdma-slow",
            odd,
            f"{subject(odd, 'has', 'have')} slower or fewer RDMA ports than the others",
            level=WARNING,
            evidence=shown,
        )


def _addresses(host: str, host_ports: list[Port], index: str) -> Iterator[Finding]:
    """Check that each RoCE port has an IP address. If a host has InfiniBand too, its RoCE is for another network."""
    if any(port.layer == "InfiniBand" for port in host_ports):
        return
    for port in host_ports:
        gid = _gid(port, index)
        if index.isdigit() and gid is None:
            text = f"{port.name} has no address at NCCL_IB_GID_INDEX={index}"
        elif not index.isdigit() and not any(not row[1].startswith("fe80:") for row in port.gids):
            text = f"{port.name} (RoCE) has no IP address"
        else:
            continue
        shown = [f"{row[0]}: {row[1]} {row[2]}" for row in port.gids[:4]]
        yield find("rdma-gid", host, text, evidence=shown)


def _gid(port: Port, index: str) -> tuple[Any, ...] | None:
    return next((row for row in port.gids if index.isdigit() and row[0] == int(index)), None)


def _types(usable: dict[str, list[Port]], answers: Answers) -> Iterator[Finding]:
    """Check that a GID index means the same everywhere: not RoCE v1 on one host and v2 on another, or IPv4 and IPv6."""
    kinds = {}
    for host, host_ports in usable.items():
        rows = [
            _gid(port, _setting(answers, host, "NCCL_IB_GID_INDEX")) for port in host_ports if port.layer == "Ethernet"
        ]
        if rows and rows[0]:
            kinds[host] = f"{rows[0][2]}, {'IPv4' if IPV4.match(rows[0][1]) else 'IPv6'}"
    if len(set(kinds.values())) > 1:
        odd, shown = odd_ones(kinds), tuple(f"{host}: {kind}" for host, kind in kinds.items())
        yield find(
            "rdma-gid",
            odd,
            f"NCCL_IB_GID_INDEX selects another kind of address on {listed(odd)}",
            "unset NCCL_IB_GID_INDEX (NCCL 2.21 and later choose it themselves), or set it for each host",
            evidence=shown,
        )
