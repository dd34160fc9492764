"""The few requests to Linux's routing socket that build a network: links, addresses, bridges. Raises OSError.

This module implements the protocol of rtnetlink(7) and linux/if_link.h itself, because a machine rented for its GPU
often has no iproute2.
"""

from __future__ import annotations

import os
import socket
import struct

_NEWLINK, _SETLINK, _NEWADDR = 16, 19, 20
_REQUEST, _ACK, _EXCL, _CREATE = 0x1, 0x4, 0x200, 0x400
_IFNAME, _MASTER, _LINKINFO, _NET_NS_PID = 3, 10, 18, 19
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_UP = 0x1


def _attribute(kind: int, data: bytes) -> bytes:
    length = 4 + len(data)
    return struct.pack("=HH", length, kind) + data + b"\0" * (-length % 4)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, change)


def _ask(kind: int, flags: int, body: bytes) -> None:
    message = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as way:
        way.send(message)
        answer = way.recv(65536)
    error = struct.unpack_from("=i", answer, 16)[0]
    if error:
        raise OSError(-error, os.strerror(-error))


def add_bridge(name: str) -> None:
    """Create a bridge in this process's network."""
    info = _attribute(_LINKINFO, _text(_INFO_KIND, "bridge"))
    _ask(_NEWLINK, _CREATE | _EXCL, _link() + _text(_IFNAME, name) + info)


def add_pair(name: str, peer: str, pid: int) -> None:
    """Create two linked interfaces: `name` here, `peer` in the network of process `pid`."""
    other = _attribute(_VETH_PEER, _link() + _text(_IFNAME, peer) + _number(_NET_NS_PID, pid))
    info = _attribute(_LINKINFO, _text(_INFO_KIND, "veth") + _attribute(_INFO_DATA, other))
    _ask(_NEWLINK, _CREATE | _EXCL, _link() + _text(_IFNAME, name) + info)


def plug(name: str, bridge: str) -> None:
    """Plug an interface into a bridge; an empty name unplugs it, and its packets are then lost silently."""
    _ask(
        _SETLINK,
        0,
        _link(socket.if_nametoindex(name)) + _number(_MASTER, socket.if_nametoindex(bridge) if bridge else 0),
    )


def switch_on(name: str) -> None:
    """Switch an interface on."""
    _ask(_SETLINK, 0, _link(socket.if_nametoindex(name), _UP, _UP))


def add_address(name: str, address: str, prefix: int) -> None:
    """Give an interface an IPv4 address."""
    packed = socket.inet_aton(address)
    head = struct.pack("=BBBBi", socket.AF_INET, prefix, 0, 0, socket.if_nametoindex(name))
    _ask(_NEWADDR, _CREATE | _EXCL, head + _attribute(2, packed) + _attribute(1, packed))
