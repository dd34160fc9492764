"""When the ranks of all nodes begin together, which nodes train, and when a node whose ranks ended well may leave.

The agent writes the current epoch into a file of the node's private folder, and reads in the folder's journal what
torchrun waits for (membership/min_nodes.py, or all_nodes.py if the run needs all its nodes). A run's only node agrees
with itself. The first node of an epoch opens a new store for the ranks; all other nodes connect to it. A newer epoch
makes torchrun end its ranks and start them again.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig

from muster.errors import TrainError
from muster.files import read_object
from muster.reserve import note

from ..files.share import Sharing
from ..membership import meeting
from ..membership.all_nodes import AllNodesState
from ..membership.link import LinkLost
from ..membership.min_nodes import BACKEND, EPOCH
from ..membership.register_without_vote import view_of
from . import stores

_POLL_S, _REACH_S, _RESOLVE_S, _JOIN_S = 0.03, 1.0, 60.0, 600
# How long a node whose ranks have ended well waits for the other nodes' ranks.
_OTHERS_S = 300.0
# How often the nodes of a run that needs them all try to share files before that ends the run.
_SHARE_ATTEMPTS = 5
_SHARE_HINT = "can the hosts reach each other's ports? with a folder that the hosts share (--mount), this is not needed"
_NO_EPOCH = {"number": 0, "place": -1, "nodes": 0, "store": "", "share": "", "stayed": True, "lost": []}


@dataclass(frozen=True)
class Generation:
    """The ranks of all nodes that train together, from one start to the next: this node's part in them.

    `attempt`: how often the ranks have been started again because of their own failures. With --min-nodes, each node
    counts that for itself.
    """

    attempt: int
    place: int
    nodes: int
    first_rank: int
    world: int
    address: str
    port: int


def _answers(address: str, port: int) -> bool:
    """Whether the store listens there. torch would try for seconds, while a newer epoch may have another store."""
    with suppress(OSError), socket.create_connection((address, port), _REACH_S):
        return True
    return False


class Epochs:
    """The epochs of this node, one after the other. `sharing`: shares the script's files between nodes before each.

    `loses_nodes`: the nodes may continue without each other (--min-nodes). Then torchrun kills its ranks when other
    nodes have begun again, because a rank that waits in native code does not handle SIGTERM.
    """

    def __init__(self, config: LaunchConfig, sharing: Sharing | None = None) -> None:
        self._ranks = config.nproc_per_node
        self._alone = AllNodesState(1, config.max_restarts) if config.max_nodes == 1 else None
        self._sharing = None if self._alone else sharing
        self.loses_nodes = config.rdzv_backend == BACKEND
        if self._sharing:  # the other nodes may have begun while this node was still starting
            self._sharing.stale = self.loses_nodes
        self._outcome = Path(os.environ.get("MUSTER_OUTCOME_DIR", ""))
        self._join_s = float(config.rdzv_configs.get("join_timeout", _JOIN_S))
        host, port = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=0)
        self._address = meeting.resolve(host if self._alone else config.local_addr or host, _RESOLVE_S)
        # A user's launcher opens its own store. It gets a port, which this process holds until the launcher starts.
        self._of_launcher = bool(os.environ.get("MUSTER_LAUNCHER_RANKS"))
        # If a single node was given a port but no rendezvous, its ranks meet at that port.
        is_told = self._alone and config.rdzv_backend == "static" and not self._of_launcher
        self._port = port if is_told else 0
        self._number = self._repeats = 0
        self._store: stores.RanksStore | socket.socket | None = None
        self._where, self._ended_at, self._agent = "", 0.0, os.getppid()
        stores.keep_ranks_on_loopback(self._address)

    def next(self, failed: bool = False) -> Generation | None:
        """Wait for a newer epoch in which this node takes part, and until that epoch's store answers.

        `failed`: ranks of this node have failed. Returns None if no epoch may follow that.
        """
        self._repeats += failed
        self._say(after=self._number, failed=failed)
        self._ended_at = 0.0
        end, attempts = time.monotonic() + self._join_s, 0
        while True:
            epoch = self._epoch()
            if epoch.get("over"):
                if failed:
                    return None
                raise RendezvousClosedError("a node of this run has ended for good")
            if epoch["number"] > self._number and epoch["place"] >= 0 and (generation := self._enter(epoch)):
                before, self._number = self._number, epoch["number"]
                attempts += 1
                if self._share(epoch, before, attempts == _SHARE_ATTEMPTS and not self.loses_nodes):
                    if isinstance(self._store, socket.socket):
                        self._store.close()
                    self._say(after=None, store=self._where)
                    return generation
                self._say(after=self._number)
            elif time.monotonic() > end and not self.loses_nodes:
                come = f"{epoch.get('come', 0)} of {epoch['nodes'] or 'all'} nodes have joined"
                raise RendezvousTimeoutError(f"{come} within {self._join_s:g} s")
            time.sleep(_POLL_S)

    def _share(self, epoch: Mapping[str, Any], before: int, last: bool) -> bool:
        """Share the script's files with the nodes of this epoch.

        Returns False if a node was lost meanwhile, or a newer epoch exists: then the nodes agree again. Raises
        TrainError in that case if this is the `last` attempt.
        """
        if not self._sharing:
            return True
        try:
            meet = partial(self._first_of, before)
            self._sharing.attempt(epoch, self._address, meet, self._is_past)
        except LinkLost as fault:
            print(f"muster: before this start, the nodes have to agree again: {fault}", file=sys.stderr, flush=True)
            if last:
                raise TrainError(f"the hosts could not share the script's files: {fault}", _SHARE_HINT) from fault
            return False
        return True

    def _first_of(self, before: int, here: str) -> str:
        """Where the first node listens to share files; this one listens at `here`."""
        # The store is announced as well: the other nodes cannot enter the epoch without it, and all would wait.
        self._say(after=before, store=self._where, share=here)
        while not (first := self._epoch()["share"]):
            if self._is_past():
                raise LinkLost("other nodes train by now")
            time.sleep(_POLL_S)
        return str(first)

    def _enter(self, epoch: Mapping[str, Any]) -> Generation | None:
        place, nodes, ranks = epoch["place"], epoch["nodes"], self._ranks
        with suppress(OSError, ValueError):
            if place == 0:
                if self._store:
                    self._store.close()  # the new store may need the same port
                listening = meeting.listen(self._address, self._port)
                address, port = self._address, int(listening.getsockname()[1])
                self._store = listening if self._of_launcher else stores.RanksStore(listening)
            elif epoch["store"]:
                address, _, text = epoch["store"].partition(" ")
                port = int(text)
                if not (self._of_launcher or _answers(address, port)):
                    return None
            else:
                return None
            self._where = f"{address} {port}"
            first, world = epoch.get("first_rank", place * ranks), epoch.get("world", nodes * ranks)
            attempt = epoch.get("repeats", self._repeats)
            return Generation(attempt, place, nodes, first, world, address, port)
        return None

    def _say(self, after: int | None, **more: Any) -> None:
        says = {"after": after, "number": self._number, "ranks": self._ranks, **more}
        if self._alone:
            self._alone.hear(0, view_of(says, time.monotonic()))
            return
        note(self._outcome, says=says)

    def _epoch(self) -> dict[str, Any]:
        if os.getppid() != self._agent:  # not on Linux: there, the kernel kills this process and the ranks by itself
            raise RendezvousConnectionError("the agent of this node has ended")
        now = self._alone.answer(0, time.monotonic()) if self._alone else read_object(self._outcome / EPOCH)
        return {**_NO_EPOCH, **now}

    def waiting(self) -> bool:
        """Whether there is a newer epoch. Raises RendezvousConnectionError if the first node or the agent is gone."""
        if self._epoch().get("gone"):
            raise RendezvousConnectionError("the first node of this run no longer answers")
        return self._is_past()

    def _is_past(self) -> bool:
        epoch = self._epoch()
        return bool(epoch["number"] > self._number or epoch.get("gone"))

    def is_over(self) -> bool:
        """Whether no ranks will start again: all have ended well, or a node has ended for good or is gone.

        Called again and again after this node's ranks have ended well. True after _OTHERS_S in any case.
        """
        if not self._ended_at:
            self._ended_at = time.monotonic()
            self._say(after=None, store=self._where, done=True)
        epoch = self._epoch()
        over = any(epoch.get(name) is True for name in ("done", "over", "gone"))
        return over or time.monotonic() - self._ended_at > _OTHERS_S

    def close(self) -> None:
        """Allow no further epoch if the run needs all its nodes; with --min-nodes, the agents decide when it ends."""
        if not self.loses_nodes:
            self._say(after=None, over=True)
