"""The rendezvous of the nodes: an IP literal, and a socket that listens there and on no other address.

Standard library only. The agent listens before it starts torchrun and hands the socket over. Otherwise seconds would
pass between a look at the port and torchrun's own listening, and anybody on the machine could take the port.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from ipaddress import ip_address

from muster.errors import Refused, TrainError

# The descriptor's number, only for torchrun: `claim` removes it from the ranks' environment.
_HELD = "MUSTER_LISTEN_FD"
_POLL_SECONDS = 0.1


def resolve(host: str, patience_seconds: float) -> str:
    """An IP literal for `host`, IPv4 first. Waits for a name that is not known yet (its container is starting)."""
    end = time.monotonic() + patience_seconds
    while True:
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return str(min(addresses, key=lambda row: row[0] != socket.AF_INET)[4][0])
        except OSError as fault:
            if time.monotonic() > end:
                raise TrainError(
                    f"the rendezvous host {host!r} has no address after {patience_seconds:.0f} s: {fault}",
                    "is the master node running, and in the same network? an IP literal needs no names",
                ) from fault
            time.sleep(_POLL_SECONDS)


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens on `port` (0: any that is free) of `address`, an IP literal of this machine's, alone.

    Raises OSError. It is asked for instead of torch's own listening, which takes every address of the machine.
    """
    listening = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        listening.listen(socket.SOMAXCONN)
    except OSError:
        listening.close()
        raise
    return listening


def this_end(address: str, port: int) -> str:
    """This machine's own address on the way to `address`: nothing is sent."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as way:
        way.connect((address, port or 1))
        return str(way.getsockname()[0])


def own_address(endpoint: str) -> dict[str, str]:
    """This node's address on the way to `endpoint`, as a field of its document; nothing if that is not known yet."""
    host, _, port = endpoint.rpartition(":")
    with suppress(OSError, ValueError):
        return {"address": this_end(str(ip_address(host.strip("[]"))), int(port))}
    return {}


def hold(address: str, port: int) -> dict[str, str]:
    """Listen, for the process that is started next: what its environment needs. Raises Refused for a taken port.

    Something else there must be known at once: torchrun would join the stranger and hang without a word.
    """
    try:
        listening = listen(address, port)
    except OSError as fault:
        raise Refused(
            f"cannot listen on {address}:{port} for the rendezvous: {fault.strerror}", "choose another port"
        ) from fault
    return {_HELD: str(listening.detach())}


def held(environment: Mapping[str, str]) -> list[int]:
    """The descriptors that the process with this environment inherits."""
    return [int(environment[_HELD])] if _HELD in environment else []


def let_go(environment: Mapping[str, str]) -> None:
    """Close the descriptors here: that process has inherited them, and the port closes when it ends."""
    for descriptor in held(environment):
        os.close(descriptor)


def claim(environment: MutableMapping[str, str]) -> socket.socket | None:
    """The socket that this process was started with; no process that it starts gets it, or hears of it."""
    number = environment.pop(_HELD, "")
    if not number:
        return None
    os.set_inheritable(int(number), False)
    return socket.socket(fileno=int(number))


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
