"""How long a run's ranks have been running, by their nodes' clocks, because the follower may have come late. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..events import Event

# How much the clocks of a host and of this machine may differ.
CLOCKS_DIFFER_S = 60.0
_BEGINS = ("began", "started")
# Events of these kinds do not have a rank's time: the follower makes them, or they come after the end.
_NOT_FROM_RANKS = ("left", "verdict", "on_end")


def started(known: Mapping[str, Any]) -> float:
    """When the last start of a run began, minus CLOCKS_DIFFER_S; 0 if `muster attach` wrote the record.

    Also 0 if there was only one start: nothing is older, and the first events of hosts whose clocks are behind are not
    lost.
    """
    starts = known.get("starts", ())
    if len(starts) < 2 or "script" in known.get("foreign", ()):
        return 0.0
    return max(0.0, float(starts[-1].get("t", 0.0)) - CLOCKS_DIFFER_S)


@dataclass
class Span:
    """When the first node came up, when the first rank began, and when a rank or an agent last wrote anything.

    Events older than `since` belong to earlier starts of the run. `waited`: the nodes first waited for their GPUs.
    """

    since: float = 0.0
    up: float = 0.0
    began: float = 0.0
    last: float = 0.0
    waited: bool = False

    def take(self, event: Event) -> None:
        """Take an event."""
        t, kind = float(event.get("t", 0.0)), event.get("kind")
        if t < self.since:
            return
        if kind == "node_up":
            self.up = min(self.up or t, t)
        if not isinstance(event.get("rank"), int) or kind in _NOT_FROM_RANKS:
            return
        self.waited = self.waited or kind == "waits"
        if kind in _BEGINS:
            self.began = min(self.began or t, t)
        self.last = max(self.last, t)

    @property
    def first(self) -> float:
        """When the run began; 0 if no rank has begun."""
        return self.began if self.waited or not self.up else min(self.up, self.began)

    @property
    def seconds(self) -> float:
        """How many seconds the run has lasted; 0 if no rank has begun."""
        return max(0.0, self.last - self.first) if self.began else 0.0
