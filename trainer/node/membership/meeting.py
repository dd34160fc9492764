"""The nodes' rendezvous: resolves its host to an IP literal, and opens sockets that listen on one address alone.

launch/epochs.py opens the store's socket in this way, and reports its port to all nodes.
Standard library only.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

from muster.errors import TrainError

_POLL_SECONDS = 0.1


def resolve(host: str, patience_seconds: float) -> str:
    """An IP literal for `host`, preferably IPv4. Waits if the name is not known yet (its container is starting)."""
    end = time.monotonic() + patience_seconds
    while True:
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return str(min(addresses, key=lambda row: row[0] != socket.AF_INET)[4][0])
        except OSError as fault:
            if time.monotonic() > end:
                raise TrainError(
                    f"the rendezvous host {host!r} has no address after {patience_seconds:.0f} s: {fault}",
                    "is the master node running, and in the same network? an IP address needs no name server",
                ) from fault
            time.sleep(_POLL_SECONDS)


def endpoint(address: str, port: int | str) -> str:
    """An address and a port as one text; an IPv6 address gets brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens on `port` (0: any free port) of `address` alone, an IP literal of this machine.

    Raises OSError. It replaces torch's own socket, which listens on every address of the machine.
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


def accept(listening: socket.socket, most: int, answer: Callable[[socket.socket], object]) -> None:
    """Answer each caller in a separate thread, at most `most` at the same time, until `close` closes the socket."""
    free = threading.BoundedSemaphore(most)

    def reply(connection: socket.socket) -> None:
        try:
            answer(connection)
        finally:
            free.release()

    while listening.fileno() >= 0:
        try:
            connection, _ = listening.accept()
        except OSError as fault:
            if fault.errno == errno.EINVAL:  # `close` has shut the socket down
                return
            time.sleep(_POLL_SECONDS)  # for example no descriptor is free: wait until other connections are closed
            continue
        if free.acquire(blocking=False):
            threading.Thread(target=reply, args=(connection,), daemon=True).start()
        else:
            connection.close()


def close(listening: socket.socket) -> None:
    """Close the socket, and so end `accept`."""
    with suppress(OSError):  # this wakes the thread in `accept`
        listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def local_address(address: str, port: int) -> str:
    """This machine's own address on the route to `address`; nothing is sent."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as way:
        way.connect((address, port or 1))
        return str(way.getsockname()[0])


def own_address(endpoint: str) -> dict[str, str]:
    """This node's address on the route to `endpoint`, as a field of its file in nodes/; empty if still unknown."""
    host, _, port = endpoint.rpartition(":")
    with suppress(OSError, ValueError):
        return {"address": local_address(str(ip_address(host.strip("[]"))), int(port))}
    return {}


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
