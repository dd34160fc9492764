"""A generation: the ranks of all nodes that train together, from one start to the next; and its end."""

from __future__ import annotations

import time
from dataclasses import dataclass

from torch.distributed import Store  # type: ignore[attr-defined]

# So long a node whose ranks have ended waits for the others' ranks; so long the one with the store stays for them.
_OTHERS_S, _LEAVE_S = 300.0, 2.0
_FIRST, _ENDED, _LEFT = "muster/share", "muster/ended", "muster/left"


@dataclass
class Generation:
    """This node's part in it. `store`: of the nodes; the ranks' own is at `address` and `port`."""

    place: int
    nodes: int
    first_rank: int
    world: int
    address: str
    port: int
    store: Store
    _ended_at: float = 0.0
    _left_at: float = 0.0

    def first(self, where: str) -> str:
        """Where the first node listens to share files; this one listens at `where`."""
        if self.place == 0:
            self.store.set(_FIRST, where)
        return str(self.store.get(_FIRST).decode())

    def is_over(self) -> bool:
        """Whether all nodes have said that their ranks ended well. Asked again and again, where a node's own have."""
        now = time.monotonic()
        try:
            if not self._ended_at:
                self._ended_at = now
                self.store.add(_ENDED, 1)
            if self.store.add(_ENDED, 0) < self.nodes:
                return now - self._ended_at > _OTHERS_S
            if not self._left_at:
                self._left_at = now
                self.store.add(_LEFT, 1)
            # The first node has the store: it stays until the others have seen this.
            return self.place > 0 or self.store.add(_LEFT, 0) >= self.nodes or now - self._left_at > _LEAVE_S
        except (ValueError, RuntimeError):  # the node with the store has ended
            return True
