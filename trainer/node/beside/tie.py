"""A node's tie to the overlay of its host (overlay.py), which lives as long as the node keeps this connection.

MUSTER_OVERLAY is the name of its socket. Standard library only.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, MutableMapping
from contextlib import suppress

NAME, DONE = "MUSTER_OVERLAY", b"done\n"


class NoOverlay(Exception):
    """The run's network is gone from this host."""


def hold(environ: MutableMapping[str, str], lost: Callable[[], None]) -> Callable[[], None]:
    """Keep the overlay alive from now on; call `lost`, from a thread, when it ends. Does nothing without one.

    Returns what says that the node does not come back: then nothing waits for it. Raises NoOverlay.
    """
    name = environ.pop(NAME, "")
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
