"""What the run's own network must avoid on a host, read from the answer to look-overlay. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

from ..core import fields
from ..core.errors import BadAnswer

_ROUTE = re.compile(r"\S+\s+([0-9A-F]{8})\s+[0-9A-F]{8}(?:\s+\S+){4}\s+([0-9A-F]{8})\s.*")
_UDP = re.compile(r"\s*[0-9]+: [0-9A-F]{8,32}:([0-9A-F]{4}) .*")
_MTU = re.compile(r"(\S{1,40}) ([0-9]{1,6})")
_MOST = 100_000


@dataclass(frozen=True)
class Networks:
    """A host's networks. `tun`: it has /dev/net/tun.

    `routes`: the networks that it knows, without the default route. `udp`: the UDP ports in use. `mtus`: the most bytes
    of a packet, by interface.
    """

    tun: bool
    routes: tuple[IPv4Network, ...]
    udp: frozenset[int]
    mtus: Mapping[str, int]


def parse(answer: str) -> Networks:
    """Read the answer. Skips lines that it does not know. Raises BadAnswer if there are too many lines."""
    rows = fields.rows(answer)
    if sum(map(len, rows.values())) > _MOST:
        raise BadAnswer("the networks of the host", f"at most {_MOST} lines", "more")
    routes = [route for row in rows.get("route", ()) if (route := _route(row))]
    ports = (match for row in rows.get("udp", ()) if (match := _UDP.fullmatch(row)))
    mtus = (match for row in rows.get("mtu", ()) if (match := _MTU.fullmatch(row)))
    return Networks(
        "tun" in rows,
        tuple(dict.fromkeys(routes)),
        frozenset(int(port[1], 16) for port in ports),
        {mtu[1]: int(mtu[2]) for mtu in mtus},
    )


def _route(row: str) -> IPv4Network | None:
    """Read a line of /proc/net/route, where an address has the machine's byte order, lowest byte first."""
    if not (match := _ROUTE.fullmatch(row)):
        return None
    address, mask = (ipaddress.IPv4Address(bytes.fromhex(text)[::-1]) for text in match.groups())
    try:
        network = IPv4Network(f"{address}/{mask}", strict=False)
    except ValueError:
        return None
    return network if network.prefixlen else None
