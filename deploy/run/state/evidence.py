"""The facts from which the inquest decides: records of the ranks and nodes, and their own verdicts on the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..events import Event
from ..inquest.blame import blame
from ..inquest.causes import Finding
from .nodes import Nodes
from .ranks import Ranks


@dataclass
class Evidence:
    """The records of a run. `verdicts`: what ranks and nodes themselves report about why they end."""

    ranks: Ranks = field(default_factory=Ranks)
    nodes: Nodes = field(default_factory=Nodes)
    verdicts: list[Event] = field(default_factory=list)

    def record(self, event: Event, t: float, now: float = 0.0) -> None:
        """Apply an event to the records. It happened at `t` by this machine's clock; `now`: as in Ranks.apply."""
        if event.get("kind") == "node" and self.nodes.has_restarted(event):
            self.ranks.show_life(event)
        self.ranks.apply(event, t, now)
        self.nodes.apply(event, t)
        if event.get("kind") == "verdict":
            self.verdicts.append(event)

    @property
    def living(self) -> dict[int, str]:
        """The node of each living rank, among those that train together, on nodes without trouble."""
        ranks, away = self.ranks, self.nodes.troubles.keys()
        began = {rank: node for rank, node in ranks.began.items() if ranks.trains(node)}
        return {rank: node for rank, node in began.items() if rank not in ranks.ends and node not in away}

    @property
    def gives_up(self) -> bool:
        """Whether a rank or a node itself has reported why it ends."""
        return any(verdict.get("verdict") != "done" for verdict in self.verdicts)

    def blame(self) -> Finding | None:
        """Who is to blame for the ends in the current attempt, from the reports of the nodes' agents."""
        return blame(self.ranks.began, list(self.ranks.ends.values()))
