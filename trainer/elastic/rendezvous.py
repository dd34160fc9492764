"""torchrun's rendezvous, on the meeting address alone, of which nothing is unpickled that came over the network.

torch's own listens on every address of the machine, has a rank listen on every address again, and unpickles what
anybody stored: a stranger runs code in every node. Here this process holds both stores, on sockets it bound itself; the
ranks are clients of the second, which is made for each generation of them. The state of the rendezvous is written as
JSON (node/rendezvous_state.py). All names of torch that its documentation does not promise are in these two files; they
were the same from torch 2.8 to 2.15.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.elastic import rendezvous as torchs
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend, dynamic_rendezvous, static_tcp_rendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from muster.errors import Refused

from ..node import meeting
from . import rendezvous_state

# Set to 1, torch's own rendezvous is used, whatever it opens.
TORCHS_OWN = "MUSTER_TORCH_RENDEZVOUS"
_NOT_SHARED = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
_RANKS_STORE = "muster/ranks-store"
_STORE_SECONDS = 300
_RESOLVE_SECONDS = 60.0


def install(held: socket.socket | None = None) -> None:
    """Have torchrun in this process meet this way; `held` listens on the meeting address already, on its first node.

    Raises Refused where this torch has other names: it would listen everywhere, and nobody would notice.
    """
    creators = getattr(torchs.rendezvous_handler_registry, "_registry", {})
    if not {"c10d", "static"} <= set(creators) or not rendezvous_state.known():
        raise Refused(
            f"torch {torch.__version__} has another rendezvous than torch 2.8 to 2.15, so this run could not keep its "
            "ports to the meeting address",
            f"use one of those; or {TORCHS_OWN}=1 takes torch's own, which listens on every address of the machine and "
            "runs code that anybody in its network stores there",
        )
    creators["c10d"] = lambda parameters: _dynamic(parameters, held)
    creators["static"] = _static


class _Backend(dynamic_rendezvous.RendezvousBackend):
    """torch's own, with the state as JSON in the store. Its methods raise RendezvousStateError for anything else."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = c10d_rendezvous_backend.C10dRendezvousBackend(store, run_id)

    @property
    def name(self) -> str:
        """The one that was asked for."""
        return self._store.name

    def get_state(self) -> tuple[bytes, Any] | None:
        """The state as torch pickles it, and its token."""
        found = self._store.get_state()
        return (rendezvous_state.pickled(found[0]), found[1]) if found else None

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, Any, bool] | None:
        """The state that is there now, its token, and whether it is `state`."""
        found = self._store.set_state(rendezvous_state.written(state), token)
        return (rendezvous_state.pickled(found[0]), *found[1:]) if found else None


class _Meeting(torchs.RendezvousHandler):
    """torch's dynamic rendezvous; the node that becomes the first holds a store for the ranks of all."""

    def __init__(self, dynamic: torchs.RendezvousHandler, address: str) -> None:
        self._dynamic, self._address = dynamic, address
        self._ranks_store: TCPStore | None = None

    @property
    def use_agent_store(self) -> bool:
        """All ranks are clients of the store: none listens for them."""
        return True

    def next_rendezvous(self) -> torchs.RendezvousInfo:
        """Wait for the others. A generation of ranks finds nothing of the one before in its store."""
        found = self._dynamic.next_rendezvous()
        if found.rank == 0:
            self._ranks_store = _store(_listening(self._address, 0), "", 0, _STORE_SECONDS)
            found.store.set(_RANKS_STORE, f"{self._address} {self._ranks_store.port}")
        address, _, port = found.store.get(_RANKS_STORE).decode().partition(" ")
        place = torchs.RendezvousStoreInfo(meeting.resolve(address, 0.0), int(port))
        return torchs.RendezvousInfo(found.store, found.rank, found.world_size, place)

    def get_backend(self) -> str:
        """As torch's; so are the others below."""
        return self._dynamic.get_backend()

    def is_closed(self) -> bool:
        """Whether nobody can join any more."""
        return self._dynamic.is_closed()

    def set_closed(self) -> None:
        """Have nobody join any more."""
        self._dynamic.set_closed()

    def num_nodes_waiting(self) -> int:
        """Nodes that wait for the next generation."""
        return self._dynamic.num_nodes_waiting()

    def get_run_id(self) -> str:
        """The id that is new with every start."""
        return self._dynamic.get_run_id()

    def shutdown(self) -> bool:
        """Close the rendezvous."""
        return self._dynamic.shutdown()


class _Static(static_tcp_rendezvous.StaticTCPRendezvous):
    """torch's static rendezvous: one store for the nodes and the ranks, on the master's address alone."""

    _at_master: TCPStore | None = None

    def next_rendezvous(self) -> torchs.RendezvousInfo:
        """Wait for nobody: who is who was said by whoever started the nodes."""
        address, seconds = meeting.resolve(self.master_addr, _RESOLVE_SECONDS), self.timeout.total_seconds()
        _stay_with(address)
        if not self._at_master:
            listening = _listening(address, self.master_port) if self.rank == 0 else None
            self._at_master = _store(listening, address, self.master_port, seconds)
        place = torchs.RendezvousStoreInfo(address, self._at_master.port)  # asked for 0, it took a free one
        return torchs.RendezvousInfo(PrefixStore(self.run_id, self._at_master), self.rank, self.world_size, place)


def _static(parameters: torchs.RendezvousParameters) -> torchs.RendezvousHandler:
    read: Any = static_tcp_rendezvous.create_rdzv_handler(parameters)
    seconds = int(read.timeout.total_seconds())
    return _Static(read.master_addr, read.master_port, read.rank, read.world_size, read.run_id, seconds)


def _dynamic(parameters: torchs.RendezvousParameters, held: socket.socket | None) -> torchs.RendezvousHandler:
    # Shared, the store of the rendezvous would be the ranks', of every generation; and torch would open one more.
    os.environ[_NOT_SHARED] = "1"
    host, port = parse_rendezvous_endpoint(parameters.endpoint, default_port=29400)
    address, is_host = meeting.resolve(host, _RESOLVE_SECONDS), parameters.get_as_bool("is_host")
    _stay_with(address)
    listening = None
    if is_host:
        listening = held or _listening(address, port)
    elif is_host is None:  # nobody said who the host is: who has that address, and comes first
        with suppress(OSError):
            listening = meeting.listen(address, port)
    ours = address if listening else meeting.this_end(address, port)
    store = _store(listening, address, port, parameters.get_as_int("read_timeout", 60) or 60)
    backend = _Backend(store, parameters.run_id)
    return _Meeting(dynamic_rendezvous.create_handler(store, backend, parameters), ours)


def _stay_with(address: str) -> None:
    """Ranks that meet on loopback talk there as well: gloo and NCCL would listen on an address of the network."""
    if ip_address(address).is_loopback:
        interface = "lo0" if sys.platform == "darwin" else "lo"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


def _listening(address: str, port: int) -> socket.socket:
    try:
        return meeting.listen(address, port)
    except OSError as fault:
        raise torchs.RendezvousConnectionError(f"cannot listen on {address}:{port}: {fault.strerror}") from fault


def _store(listening: socket.socket | None, address: str, port: int, seconds: float) -> TCPStore:
    """A store on this socket, which is the store's from now on; without one, the store that is there."""
    if listening:
        address, port = listening.getsockname()[:2]
    own = {"is_master": True, "master_listen_fd": listening.detach()} if listening else {"is_master": False}
    try:
        return TCPStore(address, port, timeout=timedelta(seconds=seconds), **own)
    except (ValueError, RuntimeError, TimeoutError) as fault:
        raise torchs.RendezvousConnectionError(f"The connection to the C10d store has failed: {fault}") from fault
