"""Which stuck rank is ended, so that all ranks start again from what they saved; never one that waits for other ranks.

Otherwise the other ranks would wait for it until their collective times out: half an hour with gloo, ten minutes with
NCCL. A hang cannot be told from a pause with certainty, so a rank is ended only if all of this is true for
WAIT_SECONDS:

- the rank is stuck (stuck_ranks.py) at a line of its own, and neither it nor its children compute, read or write;
- its main thread does not wake up: a loop that looks for a file every few seconds may wait for a good reason;
- all ranks of all nodes are asleep in the same way, and one of them waits in a collective or in backward;
- the rank has made a step before: work before the first step, such as a download, may take long;
- a restart is left: by `--restarts` for a script, and always for Muster's own trainer.

The agents exchange these facts with the messages by which they agree on the nodes that train (membership/). With
--min-nodes, a rank that SIGSTOP has stopped is ended after STOPPED_SECONDS, whatever the other ranks do. Standard
library only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from ..ending.rank_lives import Life
from .stuck_ranks import Stuck

WAIT_SECONDS = 30.0
# A person who stops a rank for a moment usually resumes it within this time.
STOPPED_SECONDS = 8.0
# The state of a set of ranks: at least one moves; all are asleep; all are asleep, and one of them waits for others.
MOVING, ASLEEP, WAITING = "moves", "still", "waits"
_WAIT_FOR_OTHERS = ("collective", "backward")
# A rank that waits for its DataLoader checks every 5 s whether the workers live.
_WAKES = {"data": 12}
_MOST_WAKES = 1


class OtherNodes(Protocol):
    """The other nodes, as this node knows them (min_nodes.py, all_nodes.py)."""

    ranks_state: str
    """The state of this node's ranks (MOVING, ASLEEP or WAITING), which is reported to the other nodes."""

    @property
    def may_begin_again(self) -> bool:
        """Whether the ranks may begin again although no node was lost."""

    def others_state(self) -> str:
        """The state of all ranks of the other nodes that train."""


class StuckRankEnder:
    """Decides which ranks of a node to end. `restarts`: how many restarts its ranks may make.

    `others`: the other nodes; None if there is only this one. `counts`: the nodes may continue without each other
    (--min-nodes), and count the restarts together.
    """

    def __init__(self, restarts: int, others: OtherNodes | None = None, counts: bool = False) -> None:
        self._restarts, self._nodes, self._counts = restarts, others, counts
        self._since: dict[int, tuple[float, int]] = {}

    def look(self, lives: Sequence[Life], stuck: Sequence[Stuck]) -> list[Stuck]:
        """The ranks to end now. Also reports the state of this node's ranks to the other nodes."""
        living = [life for life in lives if life.code is None]
        own = state_of_node(living, stuck)
        if self._nodes:
            self._nodes.ranks_state = own
        now = time.monotonic()
        others = self._nodes.others_state() if self._nodes else ASLEEP
        missing = [each for each in stuck if self._may_end(each, state_together([own, others]))]
        self._since = {each.life.pid: self._asleep_since(each, now) for each in missing}
        return [each for each in missing if now - self._since[each.life.pid][0] >= self._limit(each)]

    def _limit(self, rank: Stuck) -> float:
        return STOPPED_SECONDS if self._counts and _is_stopped(rank) else WAIT_SECONDS

    def _asleep_since(self, rank: Stuck, now: float) -> tuple[float, int]:
        """Since when the rank has been asleep, and how often it had woken up by then."""
        since, wakes = self._since.get(rank.life.pid, (now, rank.wakes))
        slept = rank.wakes - wakes <= _WAKES.get(rank.about["doing"], _MOST_WAKES)
        return (since, wakes) if slept else (now, rank.wakes)

    def _may_end(self, rank: Stuck, together: str) -> bool:
        if self._nodes and not self._nodes.may_begin_again:
            return False
        if self._counts and _is_stopped(rank):
            return rank.asleep
        own = rank.about["doing"] not in _WAIT_FOR_OTHERS
        return own and together == WAITING and rank.steps > 0 and rank.life.attempt < self._restarts


def _is_stopped(rank: Stuck) -> bool:
    return bool(rank.about["doing"] == "stopped")


def state_of_node(living: Sequence[Life], stuck: Sequence[Stuck]) -> str:
    """The state of a node's ranks."""
    asleep = [each for each in stuck if each.asleep]
    if not living or len(asleep) < len(living):
        return MOVING
    return WAITING if any(each.about["doing"] in _WAIT_FOR_OTHERS for each in asleep) else ASLEEP


def state_together(parts: Iterable[str]) -> str:
    """The state of all ranks together, from the states of their parts."""
    of = set(parts)
    if not of or not of <= {ASLEEP, WAITING}:
        return MOVING
    return WAITING if WAITING in of else ASLEEP
