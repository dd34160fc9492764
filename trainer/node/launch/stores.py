"""torch's TCPStore on a socket that this process has bound itself: it listens on the meeting address alone."""

from __future__ import annotations

import os
import socket
import sys
from datetime import timedelta
from ipaddress import ip_address

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic import rendezvous as torch_rendezvous

from ..membership import meeting


def keep_ranks_on_loopback(address: str) -> None:
    """If the nodes meet on loopback, let gloo and NCCL use it too; they would listen on a network address."""
    if ip_address(address).is_loopback:
        interface = "lo0" if sys.platform == "darwin" else "lo"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens there (0: on a free port). Raises RendezvousConnectionError."""
    try:
        return meeting.listen(address, port)
    except OSError as fault:
        raise torch_rendezvous.RendezvousConnectionError(
            f"cannot listen on {address}:{port}: {fault.strerror}"
        ) from fault


def open_store(listener: socket.socket | None, address: str, port: int, seconds: float) -> TCPStore:
    """A store that serves on `listener` and owns it from now on; without it, a client of the store at `address`."""
    if listener:
        address, port = listener.getsockname()[:2]
    role = {"is_master": True, "master_listen_fd": listener.detach()} if listener else {"is_master": False}
    try:
        return TCPStore(address, port, timeout=timedelta(seconds=seconds), **role)
    except (ValueError, RuntimeError, TimeoutError) as fault:
        raise torch_rendezvous.RendezvousConnectionError(
            f"The connection to the C10d store has failed: {fault}"
        ) from fault
