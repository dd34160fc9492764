"""How nodes meet that may be lost (`--min-nodes`): the agents have agreed, and this takes what they say.

The agent writes the present epoch into a file of the node's private folder, and reads there what torchrun waits for
(membership/group.py). The first node of an epoch opens a new store for the ranks; all others connect to it. A newer
epoch makes torchrun end its ranks and start them again.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import RendezvousConnectionError

from muster.files import parse, read, replace

from ..files.share import Sharing
from ..membership.group import EPOCH, SAYS
from ..membership.link import LinkLost
from . import stores
from .generation import Generation

_POLL_S, _REACH_S, _STORE_S = 0.03, 1.0, 5.0


def _answers(address: str, port: int) -> bool:
    """Whether somebody listens there. torch would try for seconds, while a newer epoch may have another store."""
    with suppress(OSError), socket.create_connection((address, port), _REACH_S):
        return True
    return False


class Epochs:
    """The epochs of this node, one after the other. `outcome`: its private folder; `ranks`: as many as each node has.

    `sharing`: the nodes of a script share its files before each epoch.
    """

    # Whether ranks are killed where others have begun again: one that waits in native code hears no SIGTERM.
    at_once = True

    def __init__(self, outcome: Path, address: str, run: str, ranks: int, sharing: Sharing | None = None) -> None:
        self._outcome, self._address, self._run, self._sharing = outcome, address, run, sharing
        self._ranks = ranks
        self._number = 0
        # Whether this node's files are those of the epochs before: it has had a part in each of them.
        self._is_in_line = False
        # Who has been lost since the nodes last shared their files.
        self._lost = set[str]()
        self._store: TCPStore | None = None
        self._where = ""
        stores.keep_ranks_on_loopback(address)

    def next(self) -> Generation:
        """Wait for an epoch above the last one that this node has a part in, and until its store answers."""
        self._say(after=self._number)
        while True:
            epoch = self._epoch()
            if epoch["number"] > self._number and epoch["place"] >= 0 and (generation := self._enter(epoch)):
                before, self._number = self._number, epoch["number"]
                self._is_in_line = self._is_in_line and epoch["stayed"]
                self._lost |= {*epoch["lost"]}
                if self._share(generation, before, not self._is_in_line):
                    self._say(after=None, store=self._where)
                    return generation
                self._say(after=self._number)
            time.sleep(_POLL_S)

    def _share(self, generation: Generation, before: int, stale: bool) -> bool:
        """Share the script's files with the nodes of this epoch; whether all have them, and none went away."""
        if not self._sharing:
            return True
        self._say(after=before, store=self._where)  # the others find the store, and we are not stuck
        place, nodes = generation.place, generation.nodes
        try:
            self._sharing.attempt(place, nodes, self._address, generation.first, self.waiting, stale, self._lost)
        except (LinkLost, DistError) as fault:
            print(f"muster: the nodes agree again before this start: {fault}", file=sys.stderr, flush=True)
            return False
        self._is_in_line, self._lost = True, set()
        return True

    def _enter(self, epoch: dict[str, Any]) -> Generation | None:
        number, place = epoch["number"], epoch["place"]
        with suppress(RendezvousConnectionError):
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
            store, nodes, ranks = PrefixStore(f"{self._run}/{number}", self._store), epoch["nodes"], self._ranks
            return Generation(place, nodes, place * ranks, nodes * ranks, address, port, store)
        return None

    def _say(self, after: int | None, store: str = "") -> None:
        with suppress(OSError):
            replace(self._outcome / SAYS, json.dumps({"after": after, "number": self._number, "store": store}))

    def _epoch(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            return dict(parse(read(self._outcome / EPOCH)))
        return {"number": 0, "place": -1, "nodes": 0, "store": "", "stayed": False, "lost": []}

    def waiting(self) -> bool:
        """Whether there is a newer epoch."""
        return bool(self._epoch()["number"] > self._number)

    def is_closed(self) -> bool:
        """Return False: the agents say when the run is over."""
        return False

    def close(self) -> None:
        """Do nothing: the agents say when the run is over."""
