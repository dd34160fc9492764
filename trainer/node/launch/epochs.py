"""torchrun's rendezvous where nodes may be lost (`--min-nodes`): the agents have agreed, and this takes what they say.

The agent writes the present epoch into a file of the node's private folder, and reads there what torchrun waits for
(node/group.py). The first node of an epoch opens a new store for the ranks; all others connect to it. A newer epoch
makes torchrun end its ranks and start them again, as torch's own elastic rendezvous does when a node joins.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic import rendezvous as torch_rendezvous
from torch.distributed.elastic.agent.server import local_elastic_agent

from muster.files import parse, read, replace

from ..files.share import Sharing
from ..membership.group import BACKEND, EPOCH, SAYS
from ..membership.link import LinkLost
from . import stores

_POLL_S, _REACH_S, _STORE_S = 0.03, 1.0, 5.0
_FIRST = "muster/share"


def install(outcome: Path, address: str, sharing: Sharing | None = None) -> None:
    """Make torchrun in this process use this rendezvous: with the private folder and the address of its node.

    `sharing`: the nodes of a script share its files before each epoch.
    """
    registry = torch_rendezvous.rendezvous_handler_registry
    registry.register(BACKEND, lambda parameters: _Epochs(outcome, address, parameters.run_id, sharing))
    # All nodes have as many ranks: torchrun needs no store to number them, and none that a lost node holds.
    os.environ["TORCH_ELASTIC_WORKER_IDENTICAL"] = "1"
    stores.keep_ranks_on_loopback(address)
    local_elastic_agent.LocalElasticAgent._stop_workers = _kill_ranks  # type: ignore[method-assign]


def _kill_ranks(self: Any, worker_group: Any) -> None:
    """A rank that waits for a lost one in native code hears no SIGTERM, and torchrun would wait 30 s for it."""
    self._shutdown(signal.SIGKILL)


def _answers(address: str, port: int) -> bool:
    """Whether somebody listens there. torch would try for seconds, while a newer epoch may have another store."""
    with suppress(OSError), socket.create_connection((address, port), _REACH_S):
        return True
    return False


class _Epochs(torch_rendezvous.RendezvousHandler):
    """The epochs of this node, one after the other."""

    def __init__(self, outcome: Path, address: str, run: str, sharing: Sharing | None = None) -> None:
        self._outcome, self._address, self._run, self._sharing = outcome, address, run, sharing
        self._number = 0
        # Whether this node's files are those of the epochs before: it has had a part in each of them.
        self._is_in_line = False
        # Who has been lost since the nodes last shared their files.
        self._lost = set[str]()
        self._store: TCPStore | None = None
        self._where = ""

    @property
    def use_agent_store(self) -> bool:
        """Return True: every rank is a client of the store, and no rank listens."""
        return True

    def next_rendezvous(self) -> torch_rendezvous.RendezvousInfo:
        """Wait for an epoch above the last one that this node has a part in, and until its store answers."""
        self._say(after=self._number)
        while True:
            epoch = self._epoch()
            if epoch["number"] > self._number and epoch["place"] >= 0 and (info := self._enter(epoch)):
                before, self._number = self._number, epoch["number"]
                self._is_in_line = self._is_in_line and epoch["stayed"]
                self._lost |= {*epoch["lost"]}
                if self._share(info, before, not self._is_in_line):
                    self._say(after=None, store=self._where)
                    return info
                self._say(after=self._number)
            time.sleep(_POLL_S)

    def _share(self, info: torch_rendezvous.RendezvousInfo, before: int, stale: bool) -> bool:
        """Share the script's files with the nodes of this epoch; whether all have them, and none went away."""
        if not self._sharing:
            return True
        self._say(after=before, store=self._where)  # the others find the store, and we are not stuck

        def first(where: str) -> str:
            if info.rank == 0:
                info.store.set(_FIRST, where)
            return str(info.store.get(_FIRST).decode())

        try:
            self._sharing.attempt(info.rank, info.world_size, self._address, first, self._is_over, stale, self._lost)
        except (LinkLost, DistError) as fault:
            print(f"muster: the nodes agree again before this start: {fault}", file=sys.stderr, flush=True)
            return False
        self._is_in_line, self._lost = True, set()
        return True

    def _is_over(self) -> bool:
        return bool(self.num_nodes_waiting())

    def _enter(self, epoch: dict[str, Any]) -> torch_rendezvous.RendezvousInfo | None:
        number, place = epoch["number"], epoch["place"]
        with suppress(torch_rendezvous.RendezvousConnectionError):
            if place == 0:
                self._store = stores.open_store(stores.listen(self._address, 0), "", 0, _STORE_S)
                address, port = self._address, self._store.port
            elif epoch["store"]:
                address, _, text = epoch["store"].partition(" ")
                port = int(text)
                if not _answers(address, port):
                    return None
                self._store = stores.open_store(None, address, port, _STORE_S)
            else:
                return None
            self._where = f"{address} {port}"
            endpoint = torch_rendezvous.RendezvousStoreInfo(address, port)
            store = PrefixStore(f"{self._run}/{number}", self._store)
            return torch_rendezvous.RendezvousInfo(store, place, epoch["nodes"], endpoint)
        return None

    def _say(self, after: int | None, store: str = "") -> None:
        with suppress(OSError):
            replace(self._outcome / SAYS, json.dumps({"after": after, "number": self._number, "store": store}))

    def _epoch(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            return dict(parse(read(self._outcome / EPOCH)))
        return {"number": 0, "place": -1, "nodes": 0, "store": "", "stayed": False, "lost": []}

    def get_backend(self) -> str:
        """The name of this rendezvous. It and the methods below are those that torch's interface asks for."""
        return BACKEND

    def is_closed(self) -> bool:
        """Return False: the agents say when the run is over."""
        return False

    def set_closed(self) -> None:
        """Do nothing: the agents say when the run is over."""

    def num_nodes_waiting(self) -> int:
        """Whether there is a newer epoch."""
        return int(self._epoch()["number"] > self._number)

    def get_run_id(self) -> str:
        """The id of this start of the run."""
        return self._run

    def shutdown(self) -> bool:
        """Do nothing: the agents say when the run is over."""
        return True
