"""A rendezvous for torchrun that listens on the meeting address only and unpickles nothing from the network.

torch's own rendezvous listens on every address of the machine, lets a rank listen on every address too, and unpickles
whatever anybody stored: a stranger can run code on every node. Here torchrun's process opens both stores on sockets
that it bound itself. The ranks are clients of the second store, which is new for each generation of ranks. The state of
the rendezvous is JSON (rendezvous_state.py). The private names of torch in these two files were the same from torch
2.8 to 2.15; node/torch_names.py lists them.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic import rendezvous as torch_rendezvous
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend, dynamic_rendezvous, static_tcp_rendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from muster.errors import Refused, TrainError

from ..files.share import Sharing
from ..membership import meeting
from ..membership.link import LinkLost
from . import rendezvous_state, stores
from .local_times import LocalTimes
from .standing import Standing

# If this is 1, torchrun uses torch's own rendezvous.
TORCHS_OWN = "MUSTER_TORCH_RENDEZVOUS"
_NOT_SHARED = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
_RANKS_STORE = "muster/ranks-store"
_FIRST = "muster/share"
# A node that goes away while files are shared makes the others meet again; this often, and no more.
_SHARE_ATTEMPTS = 5
_SHARE_HINT = "can the hosts reach each other's ports? a folder that the hosts share needs none of this: --mount"
_STORE_SECONDS = 300
_RESOLVE_SECONDS = 60.0
# torch's default.
_LAST_CALL_S = 30


def install(listener: socket.socket | None = None, sharing: Sharing | None = None) -> None:
    """Make torchrun in this process use this rendezvous. `sharing`: the nodes share files before each attempt.

    On the first node `listener` already listens on the meeting address. Raises Refused if this torch has other names:
    its own rendezvous would listen on every address, unnoticed.
    """
    creators = getattr(torch_rendezvous.rendezvous_handler_registry, "_registry", {})
    if not {"c10d", "static"} <= set(creators) or not rendezvous_state.is_supported():
        raise Refused(
            f"torch {torch.__version__} has another rendezvous than torch 2.8 to 2.15, so Muster cannot limit this "
            "run's ports to the meeting address",
            f"use torch 2.8 to 2.15; or set {TORCHS_OWN}=1 to use torch's own rendezvous, which listens on every "
            "address of the machine and runs code that anybody in its network stores there",
        )
    # torch would look for a free port of `localhost`, which some hosts do not have. _meet has a port of its own.
    torch_rendezvous.api.get_free_port = lambda: 0  # type: ignore[attr-defined]
    creators["c10d"] = lambda parameters: _dynamic(parameters, listener, sharing)
    creators["static"] = _static


class _Backend(dynamic_rendezvous.RendezvousBackend):
    """torch's own backend, but the state in the store is JSON. Other data there raises RendezvousStateError."""

    def __init__(self, store: Store, run_id: str, times: LocalTimes) -> None:
        self._store, self._times = c10d_rendezvous_backend.C10dRendezvousBackend(store, run_id), times

    @property
    def name(self) -> str:
        """The name of torch's backend."""
        return self._store.name

    def get_state(self) -> tuple[bytes, Any] | None:
        """The state as torch pickles it, and its token."""
        answer = self._store.get_state()
        return (rendezvous_state.to_pickle(answer[0], self._times), answer[1]) if answer else None

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, Any, bool] | None:
        """Store `state` if `token` is current. Returns the stored state, its token, and whether it is `state`."""
        answer = self._store.set_state(rendezvous_state.to_json(state, self._times), token)
        return (rendezvous_state.to_pickle(answer[0], self._times), *answer[1:]) if answer else None


class _Dynamic(torch_rendezvous.RendezvousHandler):
    """torch's dynamic rendezvous. The first node of each generation opens a store for the ranks of all nodes."""

    def __init__(self, dynamic: torch_rendezvous.RendezvousHandler, address: str, sharing: Sharing | None) -> None:
        self._dynamic, self._address, self._sharing = dynamic, address, sharing
        self._ranks_store: TCPStore | None = None
        self._standing: Standing | None = None

    @property
    def use_agent_store(self) -> bool:
        """Return True: every rank is a client of the store, and no rank listens."""
        return True

    def next_rendezvous(self) -> torch_rendezvous.RendezvousInfo:
        """Wait for the other nodes, and share files with them. Each generation of ranks gets a new store."""
        for attempt in range(_SHARE_ATTEMPTS):
            info = self._meet()
            try:
                if self._sharing and info.world_size > 1:
                    self._sharing.attempt(info.rank, info.world_size, self._address, partial(self._first, info))
                self._standing = Standing.of(info)
                return info
            except LinkLost as fault:
                print(f"muster: the nodes meet again before this attempt: {fault}", file=sys.stderr)
                if attempt == _SHARE_ATTEMPTS - 1:
                    raise TrainError(f"the hosts could not share the script's files: {fault}", _SHARE_HINT) from fault
        raise AssertionError

    def _meet(self) -> torch_rendezvous.RendezvousInfo:
        info = self._dynamic.next_rendezvous()
        if info.rank == 0:
            self._ranks_store = stores.open_store(stores.listen(self._address, 0), "", 0, _STORE_SECONDS)
            info.store.set(_RANKS_STORE, f"{self._address} {self._ranks_store.port}")
        address, _, port = info.store.get(_RANKS_STORE).decode().partition(" ")
        endpoint = torch_rendezvous.RendezvousStoreInfo(meeting.resolve(address, 0.0), int(port))
        return torch_rendezvous.RendezvousInfo(info.store, info.rank, info.world_size, endpoint)

    @staticmethod
    def _first(info: torch_rendezvous.RendezvousInfo, where: str) -> str:
        """Where the first node listens to share files; this one listens at `where`."""
        if info.rank == 0:
            info.store.set(_FIRST, where)
        return str(info.store.get(_FIRST).decode())

    def get_backend(self) -> str:
        """The name of this rendezvous. It and the methods below are those that torch's interface asks for."""
        return self._dynamic.get_backend()

    def is_closed(self) -> bool:
        """Whether no node can join any more."""
        return self._dynamic.is_closed()

    def set_closed(self) -> None:
        """Let no node join any more."""
        self._dynamic.set_closed()

    def num_nodes_waiting(self) -> int:
        """The number of nodes that wait for the next generation. torchrun asks several times a second."""
        if self._standing:
            self._standing.look()
        return self._dynamic.num_nodes_waiting()

    def get_run_id(self) -> str:
        """The id of this start of the run."""
        return self._dynamic.get_run_id()

    def shutdown(self) -> bool:
        """Close the rendezvous."""
        return self._dynamic.shutdown()


class _Static(static_tcp_rendezvous.StaticTCPRendezvous):
    """torch's static rendezvous, with one store for nodes and ranks, on the master's address only."""

    _at_master: TCPStore | None = None

    def next_rendezvous(self) -> torch_rendezvous.RendezvousInfo:
        """Return at once: the launcher of the nodes has given each its rank."""
        address, seconds = meeting.resolve(self.master_addr, _RESOLVE_SECONDS), self.timeout.total_seconds()
        stores.keep_ranks_on_loopback(address)
        if not self._at_master:
            listener = stores.listen(address, self.master_port) if self.rank == 0 else None
            self._at_master = stores.open_store(listener, address, self.master_port, seconds)
        # If the port is 0, the store has chosen a free one.
        endpoint = torch_rendezvous.RendezvousStoreInfo(address, self._at_master.port)
        store = PrefixStore(self.run_id, self._at_master)
        return torch_rendezvous.RendezvousInfo(store, self.rank, self.world_size, endpoint)


def _static(parameters: torch_rendezvous.RendezvousParameters) -> torch_rendezvous.RendezvousHandler:
    original: Any = static_tcp_rendezvous.create_rdzv_handler(parameters)
    return _Static(
        original.master_addr,
        original.master_port,
        original.rank,
        original.world_size,
        original.run_id,
        int(original.timeout.total_seconds()),
    )


def _dynamic(
    parameters: torch_rendezvous.RendezvousParameters, listener: socket.socket | None, sharing: Sharing | None
) -> torch_rendezvous.RendezvousHandler:
    # Otherwise all generations of ranks would share the store of the rendezvous, and torch would open another one.
    os.environ[_NOT_SHARED] = "1"
    host, port = parse_rendezvous_endpoint(parameters.endpoint, default_port=29400)
    address, is_host = meeting.resolve(host, _RESOLVE_SECONDS), parameters.get_as_bool("is_host")
    stores.keep_ranks_on_loopback(address)
    if is_host:
        listener = listener or stores.listen(address, port)
    else:
        listener = None
        if is_host is None:  # no setting says who the host is: it is the first process that can bind the address
            with suppress(OSError):
                listener = meeting.listen(address, port)
    own_address = address if listener else meeting.this_end(address, port)
    store = stores.open_store(listener, address, port, parameters.get_as_int("read_timeout", 60) or 60)
    times = LocalTimes(parameters.get_as_int("last_call_timeout", _LAST_CALL_S) or _LAST_CALL_S)
    backend = _Backend(store, parameters.run_id, times)
    return _Dynamic(dynamic_rendezvous.create_handler(store, backend, parameters), own_address, sharing)
