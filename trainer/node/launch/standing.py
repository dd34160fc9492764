"""Whether the ranks of all nodes stand still: each node tells of its own in torchrun's store, and reads the others.

Runs in torchrun's process, at its look for nodes that want to join. Only a node whose own ranks stand still reads.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from torch.distributed import Store  # type: ignore[attr-defined]

from muster.files import replace

from ..hang.mend import ALL, MOVES, OWN, joined
from .generation import Generation

_LOOK_S = 2.0
_KEY = "muster/standing"


class Standing:
    """The nodes of one generation of ranks. `outcome`: the private folder of this one."""

    def __init__(self, outcome: Path, generation: Generation) -> None:
        self._outcome, self._store = outcome, generation.store
        self._place, self._nodes = generation.place, generation.nodes
        self._next, self._last_state = 0.0, MOVES
        self._write(MOVES)

    @classmethod
    def of(cls, generation: Generation) -> Standing | None:
        """None where an agent does not listen, or there is no other node."""
        outcome = os.environ.get("MUSTER_OUTCOME_DIR")
        return cls(Path(outcome), generation) if outcome and generation.nodes > 1 else None

    def look(self) -> None:
        """Tell the others what the agent says of this node's ranks; tell the agent what is true of all nodes."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _LOOK_S
        own = self._own()
        if own != self._last_state:
            self._store.set(_key(self._place), own)
            self._last_state = own
        self._write(MOVES if own == MOVES else joined(_of(self._store, place) for place in range(self._nodes)))

    def _own(self) -> str:
        with suppress(OSError):
            return (self._outcome / OWN).read_text()
        return MOVES

    def _write(self, all_nodes: str) -> None:
        with suppress(OSError):
            replace(self._outcome / ALL, all_nodes)


def _key(place: int) -> str:
    return f"{_KEY}/{place}"


def _of(store: Store, place: int) -> str:
    key = _key(place)
    return bytes(store.get(key)).decode(errors="replace") if store.check([key]) else MOVES
