"""Small facts about this machine that several tests need."""

import contextlib
import random
import socket
from collections import deque

# Of each port that was given, the one for datagrams stays taken here: no other process gets it before it is used.
_GIVEN = deque[socket.socket](maxlen=100)


def free_port() -> int:
    """A TCP port nobody listens on just now, and that the system gives to nobody's connection in the meantime."""
    for port in random.SystemRandom().sample(range(15000, 28000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            given = socket.socket(type=socket.SOCK_DGRAM)
            given.bind(("127.0.0.1", port))
            _GIVEN.append(given)
            return port
    raise OSError("no port is free")
