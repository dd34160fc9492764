"""A node's connection to its host's overlay (overlay.py), which runs as long as the connection is open.

MUSTER_OVERLAY is the name of the overlay's socket. Standard library only.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, MutableMapping
from contextlib import suppress

SOCKET_VARIABLE, DONE = "MUSTER_OVERLAY", b"done\n"


class NoOverlay(Exception):
    """The run's overlay network no longer exists on this host."""


def hold(environ: MutableMapping[str, str], lost: Callable[[], None]) -> Callable[[], None]:
    """Keep the overlay alive from now on; call `lost`, from a thread, when it ends. Without an overlay, do nothing.

    Returns a function that tells the overlay that the node will not come back, so that the overlay does not wait for
    it. Raises NoOverlay.
    """
    name = environ.pop(SOCKET_VARIABLE, "")
    if not name:
        return lambda: None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(f"\0{name}")
    except OSError as fault:
        connection.close()
        raise NoOverlay(
            "the overlay network of this run has ended on this host: it does not outlive a reboot; deploy again"
        ) from fault

    def watch() -> None:
        with suppress(OSError):
            while connection.recv(1):
                pass
        lost()

    def leave() -> None:
        with suppress(OSError):
            connection.sendall(DONE)

    threading.Thread(target=watch, daemon=True, name="muster-overlay").start()
    return leave
