"""Small facts about this machine that several tests need."""

import contextlib
import random
import socket


def free_port():
    """A TCP port nobody listens on just now, and that the system gives to nobody's connection in the meantime."""
    for port in random.SystemRandom().sample(range(15000, 28000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")
