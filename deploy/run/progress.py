"""The state of a run: three reducers of its events (state/), the numbers of its training, and what the inquest finds.

Ranks write some of the events (contract.md); the control side makes the others from what it reads and sees:
`node_up` (nodes/<node>.json), `node` (the backend's NodeState), `metrics` (metrics.jsonl), `telemetry` and `scalars`
(<node>.jsonl in folders of these names), `verdict` (outcome/*.json), `left` (a rank ended with 0 while others still
run), `unread` (lines that could not be read). events.py has checked all of them. Pure: follow.py passes the events in.
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

# The errors that may come from applying an event that has passed the readers but does not make sense.
_APPLY_ERRORS = (BadAnswer, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class State(Evidence):
    """A run as its events describe it. `names` are the planned nodes by place; times `t` are Unix seconds.

    `script`: a user's script runs, which reports no checkpoints. `least`: the run continues while this many nodes are
    left; 0: it needs all. `wait_lost_s`: how long the run waits for a lost host or link. Events older than `since`
    belong to earlier starts. `roles`: the role of each node, in a run of several roles.
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
        """Apply one event, which arrives at `now` (0: not known). An older control side may meet unknown kinds.

        Ranks write events, so an event that cannot be applied raises nothing: an event `unread` reports it. Returns
        such reports.
        """
        try:
            self._apply(event, now)
        except _APPLY_ERRORS:
            t = event.get("t")
            at = now or (float(t) if isinstance(t, int | float) else 0.0)
            skipped = unread(1, f"an event `{event.get('kind')}`", at)
            for each in skipped:
                self._apply(each, now)
            return skipped
        return []

    def _apply(self, event: Event, now: float) -> None:
        event = self.ranks.renumbered(event)
        if not self.ranks.take_world(event):
            return
        t = self.nodes.align(event, now)
        # The story tells what an event changes, so it must see the event before the records do.
        self.story.apply(event, t, self, self.case.finding)
        self.training.apply(event, self.ranks.starts_again(event))
        self.case.apply(event)
        self.record(event, t, now)

    def inquire(self, now: float) -> None:
        """Add what the inquest finds to the story."""
        self.case.look(self, self.story, now)

    @property
    def names(self) -> tuple[str, ...]:
        """The planned nodes."""
        return self.nodes.names

    @property
    def script(self) -> bool:
        """Whether a user's script runs, and not Muster's own trainer."""
        return self.ranks.script

    @property
    def step(self) -> int:
        """The step that the run has reached: the step of the slowest rank."""
        return self.ranks.step
