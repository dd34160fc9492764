"""The rank numbers of commands that start their ranks themselves (`bash run.sh`, with torchrun in it). Pure.

For its node's agent such a command is a single rank, with the number of the node's place. The ranks that it starts have
other numbers: with two ranks on each of two nodes, rank 1 is on the first node, but the second node's command is called
rank 1, too. So a command gets the lowest number of its node's ranks once these have reported, and until then a number
that no rank of another node has.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from ..events import Event

_RANK_EVENTS = ("started", "step")


@dataclass
class Launchers:
    """The node of each rank that such a command started, and the number of each node's command."""

    homes: dict[int, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def meet(self, event: Event) -> dict[int, int]:
        """Record an event's ranks and commands. Returns the commands' changed numbers: each old number with the new."""
        node, rank = event.get("node"), event.get("rank")
        if not isinstance(rank, int) or not isinstance(node, str):
            return {}
        if event.get("launcher"):
            self.numbers.setdefault(node, rank)
        elif event.get("kind") in _RANK_EVENTS and node in self.numbers:
            self.homes[rank] = node
        else:
            return {}
        before = dict(self.numbers)
        for node in before:
            self.numbers[node] = self._number(node)
        return {before[node]: now for node, now in self.numbers.items() if before[node] != now}

    def _number(self, node: str) -> int:
        own, now = self.ranks_of(node), self.numbers[node]
        if own:
            return own[0]
        taken = {*self.homes, *(number for other, number in self.numbers.items() if other != node)}
        return now if now not in taken else next(number for number in itertools.count() if number not in taken)

    def ranks_of(self, node: str) -> list[int]:
        """The ranks that a node's command has started."""
        return sorted(rank for rank, home in self.homes.items() if home == node)

    def renumbered(self, event: Event) -> Event:
        """The event with the command's number as its rank; a verdict about several ranks gets no rank."""
        node, rank = str(event.get("node", "")), event.get("rank")
        if event.get("launcher") and (number := self.numbers.get(node, rank)) != rank:
            return {**event, "rank": number}
        if event.get("kind") == "verdict" and len(self.ranks_of(node)) > 1:
            return {**event, "rank": None}
        return event
