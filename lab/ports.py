"""Small facts about this machine that several tests need."""

import contextlib
import os
import random
import socket

# Each process of pytest-xdist takes ports of its own: between a look and its use another would have the same one.
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8


def free_port() -> int:
    """A TCP port nobody listens on just now, and that the system gives to nobody's connection in the meantime."""
    for port in random.SystemRandom().sample(range(15000 + _PROCESS, 28000, 8), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")
