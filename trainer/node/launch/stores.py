"""torch's TCPStore for the ranks, in a separate process, on the socket that epochs.py has opened.

The process is separate because the store has threads, and torchrun's process, which forks the ranks, must have none.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from functools import partial
from ipaddress import ip_address

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from muster.errors import FAILED

from ..parent_death import die_with_parent


def keep_ranks_on_loopback(address: str) -> None:
    """If the nodes meet on loopback, make gloo and NCCL use it too; otherwise they listen on a network address."""
    if ip_address(address).is_loopback:
        interface = "lo0" if sys.platform == "darwin" else "lo"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


class RanksStore:
    """A store that serves on a listening socket as soon as it is created."""

    def __init__(self, listening: socket.socket) -> None:
        address, port = listening.getsockname()[:2]
        self._here: TCPStore | None = None
        serve, torchrun = partial(TCPStore, address, port, is_master=True), os.getpid()
        if sys.platform != "linux":  # ranks are not forked there
            self._pid, self._here = 0, serve(master_listen_fd=listening.detach())
            return
        self._pid = os.fork()
        if not self._pid:
            die_with_parent(signal.SIGKILL, torchrun)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)
            try:
                store = serve(master_listen_fd=listening.detach())
                while store:
                    signal.pause()
            finally:
                os._exit(FAILED)
        listening.close()

    def close(self) -> None:
        """End the store."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self._here = None
