"""Follow a run to its end: read what is new in its folder, look at its nodes, kill those that a stop does not end.

outcome.py decides when the run is over. The order matters: look at the nodes first, then read the files. A node writes
its verdict before it ends, so the files then hold the verdict of every node that was seen to have ended.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from ..core.facts import NodeState
from .backend import Backend
from .events import Event
from .follower import Follower
from .outcome import Result, all_ended, concluded, final, judge, killed, left_early, stopped
from .progress import State

# How long the nodes may take to end by themselves before Muster kills them.
AFTER_VERDICT_S = 15.0
AFTER_DONE_S = 60.0
AFTER_JUDGEMENT_S = 3.0
_AFTER_STOP_S, _AFTER_GRACE_S = 30.0, 10.0
# If more time than this passes between two looks, this process was suspended: its laptop was closed, or Ctrl-Z stopped
# it. The same is assumed if the clock was set back.
_AWAY_S = 30.0


def follow(
    backend: Backend,
    follower: Follower,
    state: State,
    tell: Callable[[list[Event]], None],
    stop_requests: Callable[[], int],
    passed: Callable[[], Sequence[signal.Signals]] = tuple,
) -> Result:
    """Follow the run until every node has ended or was killed. Returns how the run ended.

    `tell` gets the new events after each look; `stop_requests` returns how often the user has pressed Ctrl-C.
    `passed` returns the signals for the ranks that have arrived since the last look.
    """
    watch, began = _Watch(backend, state, stop_requests), time.time()
    while True:
        nodes = backend.states(state)
        for number in passed():
            backend.pass_on(number)
        # Events from files come before the ends of nodes, because a node writes its reason before it ends.
        events = [*follower.read(), *changes(nodes, state)]
        now = time.time()
        for event in events:
            state.apply(event, now)
        state.inquire(now)
        left = [{"kind": "left", "t": time.time(), "rank": rank} for rank in left_early(state, time.time(), began)]
        for event in left:
            state.apply(event)
        tell([*events, *left, *backend.output(state)])
        result = watch.step(time.time())
        if result is not None:
            return concluded(result, state.case.finding)
        time.sleep(backend.look_s)


class _Watch:
    """Ends a run: once a verdict or a judgement says that it is over, the nodes get time to end, then are killed."""

    def __init__(self, backend: Backend, state: State, stop_requests: Callable[[], int]) -> None:
        self._backend, self._state, self._stop_requests = backend, state, stop_requests
        self._started_at = self._looked_at = time.time()
        self._result: Result | None = None
        self._stopping, self._stopped_at = False, 0.0
        self._deadline = float("inf")

    def step(self, now: float) -> Result | None:
        """Judge the run again. Returns the result once no node is running any more."""
        if not 0 <= (away_s := now - self._looked_at) <= _AWAY_S:
            self._pass_over(away_s, now)
        self._looked_at, requests = now, self._stop_requests()
        if requests and not self._stopping:
            self._stopping, self._stopped_at = True, now
            self._backend.stop()
            self._deadline = min(self._deadline, now + stop_patience_s(0.0))
        if self._stopping and self._result is None:  # the nodes report how long their ranks may take to save
            self._deadline = self._stopped_at + stop_patience_s(self._state.nodes.grace_s)
        if self._result is None or (not self._result.from_ranks and self._state.verdicts):
            self._settle(judge(self._state, self._started_at, now), now)
        if all_ended(self._state) and (self._result or self._stopping):
            return self._final() or stopped(self._state)
        if requests > 1 or now >= self._deadline:
            self._backend.kill()
            return self._final() or killed(self._state, None if requests > 1 else now - self._stopped_at)
        return None

    def _pass_over(self, away_s: float, now: float) -> None:
        """Do not count the time without looks: the hosts' reports from that time have not been read yet."""
        case, self._state.ranks.last_sign = self._state.case, now
        self._started_at, self._deadline = self._started_at + away_s, self._deadline + away_s
        self._stopped_at += away_s
        case.found_at, case.cut.t = case.found_at + away_s, case.cut.t + away_s

    def _final(self) -> Result | None:
        """The result, including the verdicts that have arrived since it was made."""
        return final(self._state) if self._result and self._result.from_ranks else self._result

    def _settle(self, result: Result | None, now: float) -> None:
        if result is None or (self._stopping and not result.from_ranks):
            return
        if self._result and result.verdict in ("stopped", "done"):
            return  # the remaining nodes only stop because Muster asked them to, after the known fault
        self._result = result
        if result.verdict == "done":
            patience = AFTER_DONE_S
        elif result.from_ranks:  # every rank knows of the end and is ending; a signal would only disturb it
            patience = AFTER_VERDICT_S
        else:
            patience = AFTER_JUDGEMENT_S
            self._backend.stop()
        self._deadline = min(self._deadline, now + patience)


def stop_patience_s(grace_s: float) -> float:
    """How long nodes may take to stop when their ranks have `grace_s` to save (0: the usual time)."""
    return max(_AFTER_STOP_S, grace_s + _AFTER_GRACE_S)


def changes(nodes: list[NodeState], state: State) -> list[Event]:
    """An event for each node that has changed since the state last recorded it."""
    return [
        {"kind": "node", "t": time.time(), **vars(node)} for node in nodes if state.nodes.states.get(node.node) != node
    ]
