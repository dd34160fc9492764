"""A run that needs all its nodes: the first node's agent decides when the ranks begin, and which ranks each node has.

The ranks begin together once all nodes wait for that: at first, and again whenever the ranks of a node have failed or a
node has come back. torchrun's process reads the decision in the note EPOCH, and writes into the journal what it waits
for. No clock is compared with another host's clock. Standard library only.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from muster.errors import Refused
from muster.files import is_number

from .. import torch_names
from ..files.share import KEY
from ..hang.end_stuck_rank import MOVING, state_together
from ..notes import Journal
from ..variables import number
from . import meeting, peers
from .members import View, may_repeat
from .min_nodes import write_epoch
from .register_without_vote import view_of

# How often a node checks what its own ranks need, which it reports immediately; and how often it asks while they train.
_LOOK_S, _TRAINS_S = 0.03, 0.1
# More nodes than this ask less often.
_MANY = 16
# Ranks begin if all nodes have reported within _FRESH_S. The first node is lost if its host refuses connections for
# _GONE_S, or if it is silent for _SILENT_S.
_FRESH_S, _GONE_S, _SILENT_S = 1.0, 3.0, 60.0
# How long the first node stays at the end, until the other nodes have heard that all is done.
_LEAVE_S = 2.0


class AllNodesState:
    """What the first node knows about all `nodes`. Pure: `hear` takes a node's report, `answer` makes its answer.

    `restarts`: how often ranks may begin again after failures of their own; restarts because a node came back do not
    count.
    """

    def __init__(self, nodes: int, restarts: int) -> None:
        self.number, self.over = 1, False
        self._restarts, self._repeats = restarts, 0
        self._nodes, self._views = nodes, dict[int, View]()
        self._fresh_s = _FRESH_S * max(1.0, nodes / _MANY)
        # By place, once the ranks of epoch `number` begin: the agents that take part.
        self._lives = dict[int, str]()
        # The nodes that know that all ranks have ended well.
        self.know = set[int]()

    def hear(self, place: int, view: View) -> None:
        """Take a node's report, and decide whether ranks begin, or end because other ranks begin again."""
        self._views[place] = view
        self.over = self.over or view.over
        if self._lives:
            begins_again = view.after is not None and view.after >= self.number
            if begins_again or self._lives.get(place) != view.life:
                self.over = self.over or (view.failed and not may_repeat(self._repeats, self._restarts))
                self._repeats += view.failed
                self.number, self._lives = self.number + 1, {}
        if not self._lives:
            last = max(max(each.number, each.after or 0) for each in self._views.values())
            self.number = max(self.number, last + 1)
            if len(self.waiting(view.answered)) == self._nodes:
                self._lives = {each: self._views[each].life for each in range(self._nodes)}

    def place_of(self, life: str, now: float) -> int:
        """The place for a node that was not given one: the one that it has, or a free one. Raises ValueError."""
        views = self._views
        mine = [place for place, view in views.items() if view.life == life]
        free = [each for each in range(1, self._nodes) if each not in views or now - views[each].answered > _GONE_S]
        if not mine + free:
            raise ValueError("no place is left")
        return (mine + free)[0]

    def waiting(self, now: float) -> list[int]:
        """The nodes that wait for the ranks to begin."""
        views = self._views.items()
        return [place for place, view in views if view.after is not None and now - view.answered < self._fresh_s]

    def answer(self, place: int, now: float) -> dict[str, Any]:
        """The answer to a node: the fields that Group writes into EPOCH, and the first of the node's ranks."""
        shown: dict[str, Any] = {"number": self.number, "place": -1, "nodes": self._nodes, "over": self.over}
        shown["repeats"] = self._repeats
        others = [view for each, view in self._views.items() if each != place]
        train = len(others) == self._nodes - 1 and all(each.after is None for each in others)
        shown |= {
            "come": len(self.waiting(now)),
            "stands": state_together(each.stands for each in others) if train else MOVING,
        }
        if self._lives:
            views = [self._views[each] for each in range(self._nodes)]
            ranks, first = [view.ranks for view in views], views[0]
            shown |= {"place": place, "first_rank": sum(ranks[:place]), "world": sum(ranks)}
            shown["done"] = all(view.done and view.number == self.number for view in views)
            self.know |= {place} if shown["done"] else set()
            if first.number == self.number:
                shown |= {"store": first.store, "share": first.share}
        return shown


class AllNodesMember:
    """This node in a run that needs all its nodes. The first node listens from now on; Refused if its port is taken.

    `place`: None if the first node assigns one.
    """

    def __init__(self, place: int | None, nodes: int, address: str, port: int, key: str, restarts: int = 0) -> None:
        self.ranks_state, self._restarts = MOVING, restarts
        self._place, self._nodes, self._where, self._key = place, nodes, (address, port), key
        self._life = secrets.token_hex(8)
        self._roll, self._lock, self._closed = AllNodesState(nodes, restarts), threading.Lock(), threading.Event()
        self._journal: Journal | None = None
        self._shown, self._epoch_text, self._says = dict[str, Any](), "", dict[str, Any]()
        self._heard_at = self._asked_at = 0.0
        if place == 0:
            self._listening = peers.serve(address, port, key, self._answer)

    def begin(self, outcome: Path) -> None:
        """Report for torchrun's process from now on, from its notes in this folder."""
        self._journal = Journal(outcome)
        threading.Thread(target=self._follow, daemon=True, name="muster-all-nodes").start()

    def close(self) -> None:
        """Send the last report, and stop."""
        end = time.monotonic() + _LEAVE_S
        while self._roll.know and len(self._roll.know) < self._nodes and time.monotonic() < end:
            time.sleep(_LOOK_S)
        self._closed.set()
        with suppress(ValueError, TypeError, OverflowError):
            self._step()
        if self._place == 0:
            meeting.close(self._listening)

    @property
    def may_begin_again(self) -> bool:
        """Whether the ranks may begin again after a failure of their own."""
        return may_repeat(int(self._shown.get("repeats", 0)), self._restarts)

    def others_state(self) -> str:
        """The state of the ranks of all other nodes (end_stuck_rank.py)."""
        return str(self._shown.get("stands", MOVING))

    def _answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        now, place = time.monotonic(), question.get("place")
        view = view_of(question, now)
        with self._lock:
            place = self._roll.place_of(view.life, now) if place is None else place
            if not (is_number(place) and 0 < int(place) < self._nodes):
                raise ValueError("no place")
            self._roll.hear(int(place), view)
            return self._roll.answer(int(place), now)

    def _follow(self) -> None:
        while not self._closed.wait(_LOOK_S * max(1.0, self._nodes / _MANY)):
            with suppress(ValueError, TypeError, OverflowError):  # the script may write into the journal as well
                self._step()

    def _step(self) -> None:
        """Report this node's state to the first node, and write down its answer."""
        now, says = time.monotonic(), self._journal.newest("says") if self._journal else {}
        trains = says.get("after") is None and not says.get("done") and says == self._says
        if not says or (self._place != 0 and trains and now - self._asked_at < _TRAINS_S):
            return
        self._says, self._asked_at = says, now
        about = {"life": self._life, "place": self._place, "stands": self.ranks_state, **says}
        if self._place == 0:
            with self._lock:
                self._roll.hear(0, view_of(about, now))
                self._note(self._roll.answer(0, now))
        elif answer := peers.ask(*self._where, self._key, about):
            self._heard_at = now
            self._note(answer)
        elif self._shown:
            patience = _GONE_S if answer is not None else _SILENT_S
            self._note({**self._shown, "gone": now - self._heard_at > patience})

    def _note(self, shown: dict[str, Any]) -> None:
        self._shown = shown
        if self._journal:
            epoch = {name: value for name, value in shown.items() if name != "stands"}  # only the agent needs that
            self._epoch_text = write_epoch(self._journal.folder, epoch, self._epoch_text)


def join(environment: Mapping[str, str]) -> AllNodesMember | None:
    """This node's part in its run, from torchrun's variables; None if it is the only node. Raises Refused."""
    nodes = environment.get("PET_NNODES", "1").rpartition(":")[2]
    host, _, port = environment.get("PET_RDZV_ENDPOINT", "").rpartition(":")
    if torch_names.keeps_torch_unchanged(environment) or not host or not nodes.isdecimal() or int(nodes) < 2:
        return None
    key = f"{environment.get('PET_RDZV_ID', '')} {environment.get(KEY, '')}"
    about = int(nodes), host.strip("[]"), int(port), key, number(environment, "PET_MAX_RESTARTS", 0)
    if place := environment.get("PET_NODE_RANK"):
        return AllNodesMember(int(place), *about)
    with suppress(Refused):  # the node that can listen at that address is the first one
        return AllNodesMember(0, *about)
    return AllNodesMember(None, *about)


@contextmanager
def reporting(member: AllNodesMember | None, outcome: Path) -> Iterator[None]:
    """Let `member` report for torchrun's process inside this block."""
    if member:
        member.begin(outcome)
    try:
        yield
    finally:
        if member:
            member.close()
