"""The state of a run: three reducers of its events (state/), the numbers of its training, and what the inquest finds.

Events are the ranks' own (contract.md) and those that follow.py makes of what else it sees:
`node_up` (nodes/<node>.json), `node` (the backend's NodeState), `metrics` (metrics.jsonl), `telemetry` and `scalars`
(<node>.jsonl in folders of these names), `verdict` (outcome/*.json), `left` (a rank ended with 0 while others still
run), `unread` (lines that could not be read). events.py has checked all of them. Pure: follow.py brings the events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.errors import BadAnswer
from .events import Event, unread
from .inquest.case import Case
from .lost_host import WAIT_LOST_S
from .state.evidence import Evidence
from .state.nodes import Nodes
from .state.ranks import Ranks
from .state.story import Story
from .state.times import Span
from .state.training import Training

# How an event that passes the readers may still be one that no record takes.
_ODD = (BadAnswer, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class State(Evidence):
    """A run as its events describe it. `names` are the planned nodes by place; times `t` are unix seconds.

    `script`: a user's, which reports no checkpoints. `least`: so many nodes train on without the others; 0: all are
    needed. `wait_lost_s`: how long a lost host or link is waited for. What is older than `since` is of earlier starts.
    `roles`: the role of each node, in a run of several.
    """

    def __init__(
        self,
        names: Sequence[str],
        wait_lost_s: float = WAIT_LOST_S,
        script: bool = False,
        least: int = 0,
        since: float = 0.0,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(Ranks(script, least, Span(since), roles=dict(roles or {})), Nodes(tuple(names)))
        self.wait_lost_s, self.training, self.story, self.case = wait_lost_s, Training(), Story(), Case()

    def apply(self, event: Event, now: float = 0.0) -> list[Event]:
        """Apply one event, which arrives at `now` (0: nobody knows). An older control side may meet unknown kinds.

        Ranks write events, and one that cannot be applied ends no reader: an event `unread` tells of it.
        """
        try:
            self._apply(event, now)
        except _ODD:
            t = event.get("t")
            at = now or (float(t) if isinstance(t, int | float) else 0.0)
            skipped = unread(1, f"an event `{event.get('kind')}`", at)
            for each in skipped:
                self._apply(each, now)
            return skipped
        return []

    def _apply(self, event: Event, now: float) -> None:
        event = self.ranks.placed(event)
        if not self.ranks.take_world(event):
            return
        t = self.nodes.align(event, now)
        # The story tells what an event changes: it is asked first.
        self.story.apply(event, t, self, self.case.finding)
        self.training.apply(event, self.ranks.starts_again(event))
        self.case.apply(event)
        self.record(event, t, now)

    def inquire(self, now: float) -> None:
        """Tell what the inquest finds."""
        self.case.look(self, self.story, now)

    @property
    def names(self) -> tuple[str, ...]:
        """The planned nodes."""
        return self.nodes.names

    @property
    def script(self) -> bool:
        """Whether it is a user's script that runs."""
        return self.ranks.script

    @property
    def step(self) -> int:
        """The step the run has reached: the slowest rank's."""
        return self.ranks.step
