"""How many ranks train: what another start of a run, with more hosts, has left of further ranks is over. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .events import Event


@dataclass
class World:
    """The number of ranks as the newest start says it, at `t`; 0: nobody has said it yet."""

    size: int = 0
    t: float = 0.0

    def has(self, event: Event) -> bool:
        """Take what an event says of it. False for one of a rank that there is no more: it came late."""
        t, rank = float(event.get("t", 0.0)), event.get("rank")
        if event.get("kind") == "started" and event.get("world") and t >= self.t:
            self.size, self.t = int(event["world"]), t
        return not (isinstance(rank, int) and self.size and rank >= self.size and t < self.t)

    def forget_others(self, *by_rank: dict[int, Any]) -> None:
        """Remove the ranks that there are no more."""
        for known in by_rank:
            for rank in [rank for rank in known if self.size and rank >= self.size]:
                del known[rank]
