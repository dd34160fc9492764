"""Check the probes' answers, question by question: the judge gets only checked answers. Pure.

A host, or any program on one of its ports, can answer anything. An answer of the wrong shape raises BadAnswer, which
counts as a fault of that host; preflight judges the other hosts as usual.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import BadAnswer
from ..core.fields import (
    Reader,
    address,
    array,
    digits,
    either,
    flag,
    interface,
    optional,
    real,
    record,
    row,
    table,
    text,
    whole,
    words,
)

# A host's name, or an empty one; kernels report `(none)` if none is set. It may also be an address.
_ANY_NAME = words(253)


def _hostname(value: object, what: str) -> str:
    """Read a host's own name; replace characters that no network name has by `_`: we may suggest commands with it."""
    return re.sub(r"^[^A-Za-z0-9_:(]|[^A-Za-z0-9._:()-]", "_", _ANY_NAME(value, what))


_DIGITS = text(5, r"[0-9]+")
_PORT, _SIZE, _SECONDS, _MS = whole(65535), whole(1 << 80, least=-1), real(1e6), real(1e9)
# The probe sends this record instead of the answer if a question fails or does not end in time.
_FAILED = record({"error": words()}, {"code": whole(1 << 31, least=-(1 << 31))})


def _plain(most: int) -> Reader[str]:
    """Return a reader of text in ASCII, which replaces any other character by a question mark."""

    def read(value: object, what: str) -> str:
        return words(most)(value, what).encode("ascii", "replace").decode()

    return read


def _settings(value: object, what: str) -> dict[str, str]:
    """Read variables; hide the login in a proxy's or other URL, because findings are shown and recorded.

    The login of a proxy may contain any character.
    """
    read = table(text(200, r"\w+"), words())(value, what)
    login = re.compile(r"^(\w+://)?.*@", re.DOTALL)
    return {
        name: login.sub(r"\1***@", text)
        if name.lower().endswith("_proxy")
        else re.sub(r"://[^/@\s]+@", "://***@", text)
        for name, text in read.items()
    }


def _network(value: object, what: str) -> list[Any]:
    """Read an address and the length of its network's prefix."""
    network = row(address, whole(128))(value, what)
    if "%" in network[0] or network[1] > ipaddress.ip_address(network[0]).max_prefixlen:
        raise BadAnswer(what, "an address and its prefix", f"{network[0]}/{network[1]}")
    return network


def _port_range(value: object, what: str) -> list[int]:
    low, high = row(whole(65535, least=1), whole(65535, least=1))(value, what)
    if low > high:
        raise BadAnswer(what, "the lower port first", f"{low} {high}")
    return [low, high]


def _instead(reader: Reader[Any], blank: Any, *others: Reader[Any]) -> Reader[Any]:
    """Return a reader that reads `blank` if the answer has one of the `others` shapes."""

    def read(value: object, what: str) -> Any:
        if any(optional(other)(value, what) is not None for other in others):
            return blank
        return reader(value, what)

    return read


_RESOLVED = table(_hostname, either(_FAILED, array(row(address, flag, words(255)), 256)))
_NAMES = _instead(_RESOLVED, {}, record({"error": text(100)}))
_INTERFACE = record(
    {
        "addresses": array(_network, 256),
        "up": flag,
        "running": flag,
        "loopback": flag,
        "mtu": whole(1 << 32),
        "speed": whole(1 << 32),
    },
    {
        "mac": text(100, r"[0-9a-fA-F:]*"),
        "bridge": flag,
        "ports": array(interface),
        "tunnel": flag,
        "index": whole(),
        "point_to_point": flag,
    },
)
_ROOM = record(dict.fromkeys(("total", "free", "inodes", "inodes_free"), _SIZE), {"writable": flag})
_LIMIT = row(_SIZE, _SIZE)
_RESOURCES = record(
    {
        "disk": table(text(4096), _ROOM, 100),
        "nofile": _LIMIT,
        "memlock": _LIMIT,
        "memory": table(text(100), _SIZE, 100),
    },
    {
        "cores": whole(),
        **dict.fromkeys(("fsize", "cpu", "as", "data", "stack", "nproc"), _LIMIT),
        "conntrack": array(_SIZE, 2),
        "ports_from": whole(1 << 16),
        "threads": row(whole(1000), whole(1000)),
        "pids": _SIZE,
        "denied": flag,
        "bare": flag,
        "pace": row(_SECONDS, _SECONDS, real(1e6)),
    },
)
_VERSIONS = ("torch", "cuda", "hip", "nccl")
_SOFTWARE = record({"python": _plain(100)}, dict.fromkeys(_VERSIONS, _plain(100)))


def _gpu(value: object, what: str) -> list[str]:
    """Read a row of nvidia-smi's table: the GPU's number, then the other columns."""
    cells = array(_plain(200), 100)(value, what)
    digits(10_000)(cells[0] if cells else None, f"{what}[0]")
    return cells


_GPUS = record(
    {},
    {
        "rows": array(_gpu, 256),
        "error": words(),
        "seconds": _SECONDS,
        "absent": flag,
        "devices": flag,
        "amd": flag,
        "code": whole(least=-999),
    },
)
_CUDA = record(
    {},
    {
        "version": whole(10**6, least=-1),
        "code": whole(1 << 31, least=-(1 << 31)),
        "count": whole(10_000, least=-1),
        "error": words(),
    },
)
_RDMA_PORT = record(
    {
        "state": _plain(100),
        "rate": _plain(100),
        "link_layer": _plain(100),
        "gids": array(row(whole(1 << 16), text(100, r"[0-9a-fA-F:]*"), _plain(100), _plain(100))),
    }
)
_RDMA = _instead(table(text(100, r"[\w.-]+"), table(_DIGITS, _RDMA_PORT, 100), 100), {}, array(words(), 0), _FAILED)
_FACTS = record(
    {
        "hostname": _hostname,
        "names": _NAMES,
        "interfaces": table(interface, _INTERFACE, 4096),
        "port_range": _port_range,
        "environment": _settings,
        "software": _instead(_SOFTWARE, {"python": ""}, _FAILED),
        "resources": _RESOURCES,
    },
    {
        "fqdn": _instead(_hostname, "", _FAILED),
        "user": whole(1 << 32),
        "kernel": words(200),
        "namespace": words(100),
        "boot": words(100),
        "container": flag,
        "listening": array(_PORT, 65536),
        "reserved": array(row(_PORT, _PORT)),
        "leftovers": array(row(whole(1 << 32, least=1), real(1e12, least=-1e12), words(200)), 10_000),
        "gpus": _GPUS,
        "cuda": _CUDA,
        "rdma": _RDMA,
        "rdma_devices": flag,
        "verbs": whole(1 << 16, least=-1),
        "mounts": table(text(4096), text(4, "r?w?o?[fe]?")),
    },
)
_LISTEN = record(
    {"ports": array(_PORT, 100), "sampled": array(whole(65535, least=1), 100)},
    {
        "failed": table(_DIGITS, record({"error": words(200), "holder": words(200)}, {"probe": flag}), 100),
        "routes": table(text(100), either(_FAILED, address), 100),
        "ways": table(text(100), either(_FAILED, address)),
        "names": _NAMES,
    },
)


def _from_stranger(reader: Reader[str]) -> Reader[str]:
    """Return a reader of text that came from a port, where any program may listen: `?` for malformed text."""
    return lambda value, what: optional(reader)(value, what) or ("" if value in (None, "") else "?")


_RESULT = record(
    {"id": whole(1 << 20), "outcome": text(30, r"[a-z-]+")},
    {
        **dict.fromkeys(("ms", "trip_ms"), _MS),
        **dict.fromkeys(("send_s", "both_s"), _SECONDS),
        **dict.fromkeys(("sent", "again", "twice"), whole(1 << 40)),
        "tries": whole(1000),
        "rate": whole((1 << 64) - 1),
        "host": _from_stranger(words(253)),
        "seen": _from_stranger(address),
        **dict.fromkeys(("acked", "received"), whole(1 << 62)),
        "idle_ms": whole(1 << 32),
        "card": text(100, r"[0-9a-fA-F:]*"),
        "by": address,
        "source": _from_stranger(address),
    },
)
_FIREWALL = record({"read": flag, "rules": array(words(500), 100)}, {"hits": array(whole(), 100)})
_RANK = record(
    {"local": whole(1024), "step": words(300)},
    {
        "right": flag,
        "error": words(1500),
        "signal": whole(64, least=1),
        "code": whole(255),
        "words": words(500),
        "seconds": _SECONDS,
        "world": whole(1 << 20),
        "nccl": array(_plain(200), 80),
        "at": text(20, r"[a-z]+"),
        "missed": whole(1 << 20),
        "mb": whole(),
        "seen": array(text(20, r"[a-z_]+"), 20),
    },
)
_REHEARSAL = record(
    {"phase": text(20, r"alone|together"), "torch": words(100)},
    {
        "ranks": array(_RANK, 1024),
        "warnings": array(row(words(300), words(200)), 100),
        "error": words(500),
    },
)
_SHAPES: Mapping[str, Callable[[object, str], dict[str, Any]]] = {
    "facts": _FACTS,
    "listen": _LISTEN,
    "connect": record({"results": array(_RESULT, 10_000)}),
    "clock": record({"time": real(1e11)}),
    "firewall": _FIREWALL,
    "rehearsal": _REHEARSAL,
}


def read(question: str, answer: object) -> dict[str, Any]:
    """Check a whole answer to a question and return it. Raises BadAnswer, which names the field."""
    return _SHAPES[question](answer, question)
