"""A free TCP port for tests."""

import contextlib
import random
import socket
from collections import deque

# For each given port, a datagram socket stays bound here: so no other process is given the port before it is used.
_GIVEN = deque[socket.socket](maxlen=100)


def free_port() -> int:
    """A TCP port on which nothing listens, and which the system will not assign to a connection in the meantime."""
    for port in random.SystemRandom().sample(range(15000, 28000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            given = socket.socket(type=socket.SOCK_DGRAM)
            given.bind(("127.0.0.1", port))
            _GIVEN.append(given)
            return port
    raise OSError("no port is free")
