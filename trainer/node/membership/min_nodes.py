"""This node in a run whose nodes may continue without each other (`--min-nodes`): who votes, when too few are left.

Each agent asks the other agents (peers.py) for their state several times a second. The leader of the register
(register.py) decides from the answers which nodes train next (members.py). torchrun's process reads the epoch from a
file in the node's private folder, and writes into its journal what it waits for (launch/epochs.py).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from muster.errors import FAILED, TrainError
from muster.files import replace as write
from muster.reserve import write_surely

from ..files.neighbour_copies import NeighbourCopies, Source
from ..hang.end_stuck_rank import ASLEEP, MOVING, state_together
from ..notes import Journal
from ..variables import FIRST_FILE, event_file_of, number
from . import meeting, peers
from .leave import Leaving
from .members import ASK_S, ENDS_S, HEARD_S, Epoch, Leader, View, find_cut_off, may_repeat, refusal_to_leave
from .newcomers import Newcomers
from .register_without_vote import Registered, SpareRegister, fields_of, view_of

# The variable with the group's plan. Only agents get it, because it contains the run's key.
GROUP = "MUSTER_GROUP"
# The file in the node's private folder into which the agent writes the current epoch.
EPOCH = ".epoch"
BACKEND = "muster"
_ASK_S, _LOOK_S, _PROPOSE_S = 0.15, 0.05, 0.4
# More nodes than this ask less often.
_MANY = 32
_ALONE_S, _ALL_GONE_S, _STUCK_S = 30.0, 10.0, 15.0
_LEAVE_S, _LINGER_S = 5.0, 1.0
# A node that an epoch left out may be cut off, or may have lost its power. Which of the two it is, is decided _DOUBT_S
# after the news of that epoch. What other members report about the node counts only from _SURE_S after the news on.
_SURE_S = 0.5
_DOUBT_S = _SURE_S + HEARD_S
# torchrun's own limit must not apply: it counts every failed rank, even one that only lost a peer. The register counts
# the failures that are the ranks' own.
_UNLIMITED_RESTARTS = "1000000"


def write_epoch(folder: Path, epoch: Mapping[str, Any], before: str) -> str:
    """Write the file EPOCH if its text is no longer `before`; returns the text that it has now.

    This works on a full disk as well, because torchrun waits for it.
    """
    text = json.dumps(epoch)
    written = text != before and write_surely(partial(write, folder / EPOCH, text), folder)
    return text if written else before


class Group:
    """A node's part in the group, from now until its process ends. Raises TrainError if it cannot listen.

    `restarts`: how often the same nodes may begin again. `script`: the ranks run a script of the user.
    """

    def __init__(
        self,
        plan: Mapping[str, Any],
        name: str,
        folder: Path,
        start: str,
        outcome: Path,
        restarts: int = 0,
        script: bool = False,
    ) -> None:
        self._restarts, self._stops = restarts, False
        self.ranks_state = MOVING
        self.name, self._folder, self._journal = name, folder, Journal(outcome)
        self._leaving = Leaving(outcome, name)
        nodes: dict[str, list[Any]] = plan["nodes"]
        self._planned_spares = self.spares = tuple(map(str, plan.get("spares", ())))
        self._arbiter = str(plan.get("arbiter", ""))
        self._voters = tuple(each for each in nodes if each not in self.spares)
        self.planned = tuple(each for each in self._voters if each != self._arbiter)
        self.least, self._key = int(plan["least"]), str(plan["key"])
        journal = folder / "nodes" / f".{name}.{start}.register"
        joined = dict(plan.get("joined", {}))
        # A newcomer counts as a node that comes back: it also ends itself if no node answers it.
        self._returns = journal.exists() or name in joined
        self._newcomers = Newcomers(journal.with_suffix(".joined"), nodes.keys(), joined)
        self._views = {each: View() for each in nodes}
        able, now = (*self.planned, *self.spares), time.monotonic()
        self._leader = Leader(able, self.least, self.spares, bool(self._arbiter), not script, now)
        self._lock = threading.Lock()
        self._alone_since = self._stuck_since = self._deaf_since = float("inf")
        self._proposed = 0.0
        self._epoch, self._last_news = Epoch(), 0
        self._trained: tuple[str, ...] = ()
        self._left_out: tuple[float, tuple[str, ...]] = (0.0, ())
        # A node that comes back has no part in earlier epochs: their stores, and its ranks in them, are gone.
        self._floor = -1 if self._returns else 0
        self._shown = ""
        self._spare_register = SpareRegister(journal, frozenset(nodes)) if name in self.spares else None
        self._register = self._spare_register or self._voted(nodes, journal)
        self._copies: NeighbourCopies | None = None
        peers.serve(nodes[name][0], nodes[name][2], self._key, self._answer)
        own = str(nodes[name][0]) if plan.get("apart") else ""
        if script:
            self._copies = NeighbourCopies(folder, self._key, own, self._sources, self._running)
        for each, (address, _, port) in nodes.items():
            if each not in joined:
                self._begin_to_ask(each, address, port)
        with self._lock:
            for each in self._newcomers.names:
                self._admit(each)
        threading.Thread(target=self._follow, daemon=True, name="muster-group").start()

    def _voted(self, nodes: Mapping[str, Sequence[Any]], journal: Path) -> Registered:
        try:
            from .register import Register  # imported here, since only runs with --min-nodes need pysyncobj
        except ImportError as fault:
            raise TrainError(
                f"this image cannot keep the nodes' register: {fault}", "pip install pysyncobj==0.3.17"
            ) from fault

        where = {each: f"{nodes[each][0]}:{nodes[each][1]}" for each in self._voters}
        return Register(self.name, where, self._key, journal)

    @property
    def is_arbiter(self) -> bool:
        """Whether this node is the arbiter, which votes and does not train."""
        return self.name == self._arbiter

    @property
    def epoch(self) -> Epoch:
        """The current epoch."""
        return self._epoch

    @property
    def may_begin_again(self) -> bool:
        """Whether the ranks may begin again although no node was lost."""
        return may_repeat(self._epoch.repeats, self._restarts)

    def others_state(self) -> str:
        """The state of all ranks of the other training nodes (end_stuck_rank.py); moving if one does not answer."""
        now, epoch, views = time.monotonic(), self._epoch, self._views
        others = [views.get(name, View()) for name in epoch.members if name != self.name]
        trains = [view.is_alive(now) and view.after is None and view.number == epoch.number for view in others]
        if self.name not in epoch.members or not all(trains):
            return MOVING
        return state_together(view.stands for view in others) if others else ASLEEP

    def reason_to_end(self) -> str:
        """Why this node must end its ranks and itself; empty as long as it need not."""
        now, others = time.monotonic(), [view for name, view in self._views.items() if name != self.name]
        seen = {self.name, *(name for name, view in self._views.items() if view.is_alive(now))}
        present, voters = len(seen - {self._arbiter}), len(seen.intersection(self._voters))
        gone = all(view.gone for view in others)
        votes = voters > len(self._voters) // 2
        enough = (votes and present >= self.least) if self._epoch.number or self._returns else True
        self._alone_since = float("inf") if enough else min(self._alone_since, now)
        says = self._says()
        runs = bool(self._arbiter) and says.get("after", 0) is None
        patience = ENDS_S if runs and not votes else _ALL_GONE_S if gone else _ALONE_S
        if now - self._alone_since > patience:
            but = f"--min-nodes is {self.least}" if votes else "more than half of them must agree, without the spares"
            shown = f"{present} of {len(self._views)}" if votes else f"{voters} of {len(self._voters)}"
            return f"{self.name} has seen only {shown} nodes for {patience:.0f} s, but {but}: it stops training"
        if self.is_arbiter:
            return ""
        # Before torchrun's first note, no ranks run that could be behind; torchrun may take long to start.
        behind = self._epoch.number > says.get("number", 0) and says.get("after", 0) is None
        self._stuck_since = min(self._stuck_since, now) if behind else float("inf")
        if now - self._stuck_since > _STUCK_S:
            return f"the ranks of {self.name} have not ended for {_STUCK_S:.0f} s, and the nodes continue without them"
        deaf = any(view.number > self._epoch.number for view in others if view.is_alive(now))
        self._deaf_since = min(self._deaf_since, now) if deaf else float("inf")
        patience = ENDS_S if runs else _STUCK_S
        if now - self._deaf_since > patience:
            return f"{self.name} has not heard for {patience:.0f} s in which epoch the other nodes train"
        return ""

    def is_waiting(self) -> bool:
        """Whether torchrun's process waits for an epoch."""
        return self._says().get("after") is not None

    @property
    def has_left(self) -> bool:
        """Whether this node was asked to leave, and the other nodes keep training without it."""
        return self._leaving.has_left

    def leavers(self, names: Sequence[str]) -> list[str]:
        """Which of these nodes were asked to leave."""
        return [name for name in names if self._view_of(name).leaves]

    def _view_of(self, name: str) -> View:
        """What a node last reported; an empty view if this node has not heard from it yet."""
        return self._views.get(name, View())

    def note_stop_request(self) -> None:
        """Note that this node was asked to stop the run; the end of its ranks is then no reason to begin again."""
        self._stops = True

    def end_run(self, code: int) -> None:
        """The ranks have ended the run with this code. Returns once a majority knows, or after a while."""
        end = time.monotonic() + _LEAVE_S
        number = self._says().get("number", 0)
        while self._register.epoch.over is None and number and time.monotonic() < end:
            self._register.end(number, code)
            time.sleep(_PROPOSE_S / 2)
        self.linger()

    def linger(self) -> None:
        """Stay for a moment, so that the other nodes can hear the current epoch from this node too."""
        time.sleep(_LINGER_S)

    def news(self) -> Epoch | None:
        """A new epoch for this node to report, because it is the epoch's first member; each epoch only once.

        Its `before` are the members at the last call, since epochs in between may have passed unseen.
        """
        epoch = self._epoch
        if epoch.number <= self._last_news:
            return None
        before, self._last_news, self._trained = self._trained, epoch.number, epoch.members
        if not before or epoch.members[0] != self.name:
            return None
        gone = (name for name in before if name not in epoch.members)
        self._left_out = time.monotonic(), tuple(name for name in gone if not self._view_of(name).leaves)
        return replace(epoch, before=before)

    def cut_off_nodes(self) -> list[tuple[str, tuple[str, ...]]]:
        """The living nodes that the last `news` left out, each with the members that cannot reach it; only once."""
        news_at, left_out = self._left_out
        if not left_out or time.monotonic() - news_at < _DOUBT_S:
            return []
        self._left_out = news_at, ()
        views = {name: self._view_of(name) for name in (*left_out, *self._trained)}
        return find_cut_off(left_out, self._trained, self.name, views, news_at, news_at + _SURE_S)

    def _answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        self._meet(question)
        with self._lock:
            return self._about()

    def _meet(self, message: Mapping[str, Any]) -> None:
        """Take another node's report of hosts that have joined."""
        if message.get("joined"):
            with self._lock:
                for name in self._newcomers.hear(message["joined"]):
                    self._admit(name)

    def _admit(self, name: str) -> None:
        """Let a newcomer be a spare from now on."""
        is_new, self.spares = name not in self._views, self._planned_spares
        self.spares += tuple(each for each in self._newcomers.names if each not in self.spares)
        self._leader.spares, self._leader.planned = self.spares, (*self.planned, *self.spares)
        self._views = {**self._views, name: self._view_of(name)}  # a new dict: other threads iterate over the old one
        if self._spare_register:
            self._spare_register.nodes |= {name}
        if is_new or name == self.name:
            self._begin_to_ask(name)

    def _begin_to_ask(self, name: str, *where: Any) -> None:
        if name != self.name:
            threading.Thread(target=self._ask, args=(name, *where), daemon=True).start()

    def _about(self) -> dict[str, Any]:
        now = time.monotonic()
        sees = [each for each, view in self._views.items() if each != self.name and view.is_alive(now)]
        says = {"after": None, "number": 0, "store": "", **self._says()}
        # Until this node knows the current epoch, it cannot report that it waits for a newer one.
        if says["after"] is not None:
            says["after"] = max(says["after"], self._floor) if self._floor >= 0 else None
        saved = self._copies.saved if self._copies else newest_checkpoint_time(self._folder / "checkpoints")
        more: dict[str, Any] = {"files": self._copies.where} if self._copies else {}
        more |= {"epoch": fields_of(self._epoch), "ended": self._spare_register.ended if self._spare_register else None}
        more |= {"leaves": self._leaving.is_leaving, "joined": self._newcomers.addresses()}
        return {**says, "sees": sees, "saved": saved, "stops": self._stops, "stands": self.ranks_state, **more}

    def _running(self) -> int:
        """The epoch whose ranks run on this node; 0 while none run."""
        says = self._says()
        number = int(says.get("number") or 0)
        return number if says.get("after", 0) is None and number == self._epoch.number else 0

    def _sources(self) -> list[Source]:
        """The nodes whose files this node copies: those before it in the epoch, as many as may be lost."""
        members, epoch = self._epoch.members, self._epoch.number
        if self.name not in members:
            return []
        place, count = members.index(self.name), min(max(1, len(self.planned) - self.least), len(members) - 1)
        with self._lock:
            views = [(name, self._view_of(name)) for name in (members[place - 1 - more] for more in range(count))]
        return [Source(name, view.files, view.saved, epoch) for name, view in views]

    def _ask(self, name: str, *planned: Any) -> None:
        """Ask one other node as long as this one lives. `planned`: its address and port; a newcomer reports its own."""
        answer: dict[str, Any] | None = {}
        while True:
            time.sleep(pause_s(len(self._views), answer is not None))
            began, where = time.monotonic(), planned or self._newcomers.where(name)
            answer = peers.ask(str(where[0]), int(where[1]), self._key, {"joined": self._newcomers.addresses()})
            self._meet(answer or {})
            with self._lock:
                if answer:
                    self._views[name] = view_of(answer, began)
                    if self._spare_register:
                        self._spare_register.hear(answer.get("epoch"))
                elif answer is not None:
                    self._views[name] = replace(self._views[name], gone=True)

    def _follow(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            epoch = self._register.epoch
            if self._floor < 0:
                if not self._register.is_current:
                    continue
                self._trained = epoch.members
                self._floor = self._last_news = epoch.number
            if epoch.number > self._epoch.number or epoch.over is not None:
                self._epoch = epoch
            self._leaving.look(self._refusal, self._epoch, time.monotonic())
            self._show()
            if self._register.is_leader:
                self._lead()

    def _refusal(self) -> str:
        if not self._epoch.number:
            return "its ranks have not started to train"
        able, views = (*self.planned, *self.spares), dict(self._views)
        return refusal_to_leave(self.name, able, self._voters, self.least, views, time.monotonic())

    def _lead(self) -> None:
        now = time.monotonic()
        with self._lock:
            self._views[self.name] = view_of(self._about(), now)
            views = {name: View() for name in self._epoch.members} | self._views
        for view in views.values():
            if view.ended and view.ended[0] == self._epoch.number and self._epoch.over is None:
                self._register.end(*view.ended)
        members = self._leader.next(self._epoch, views, now)
        if members and now - self._proposed > _PROPOSE_S:
            self._proposed = now
            if members == self._epoch.members and not self.may_begin_again:
                self._register.end(self._epoch.number, FAILED)
            else:
                self._register.form(self._epoch.number + 1, members)

    def _show(self) -> None:
        """Write the current epoch for torchrun's process, with what the epoch's nodes have reported about it."""
        epoch, now = self._epoch, time.monotonic()
        views = [view_of(self._says(), now) if each == self.name else self._view_of(each) for each in epoch.members]
        present = [view if view.number == epoch.number else View() for view in views]
        first = present[0] if present else View()
        takes_part = self.name in epoch.members and epoch.number > self._floor
        place = epoch.members.index(self.name) if takes_part else -1
        shown: dict[str, Any] = {"number": epoch.number, "place": place, "nodes": len(epoch.members)}
        shown |= {
            "store": first.store,
            "share": first.share,
            "done": bool(present) and all(each.done for each in present),
        }
        lost = [name for name in epoch.before if name not in epoch.members]
        shown |= {"stayed": self.name in epoch.before, "lost": lost}
        self._shown = write_epoch(self._journal.folder, shown, self._shown)

    def _says(self) -> dict[str, Any]:
        return self._journal.newest("says")


def pause_s(nodes: int, answered: bool = True) -> float:
    """How many seconds a node waits between two questions to another node; longer with many nodes, as each asks all.

    It is always short enough for another question before a node whose answer got lost counts as lost (SILENT_S).
    """
    return min(ASK_S, _ASK_S * max(1.0, nodes / _MANY)) if answered else _ASK_S


def newest_checkpoint_time(checkpoints: Path) -> float:
    """When the newest checkpoint in this folder was completed; 0 if there is none."""
    with suppress(OSError):
        return max((path.stat().st_mtime for path in checkpoints.glob("step-*/manifest.json")), default=0.0)
    return 0.0


def join(
    plan: Mapping[str, Any] | None,
    name: str,
    folder: Path | None,
    environment: Mapping[str, str],
    outcome: Path,
    script: bool,
) -> Group | None:
    """The node's part in its group; None if it is in no group. Raises TrainError."""
    if not plan or not folder:
        return None
    restarts = number(environment, "PET_MAX_RESTARTS", 0)
    return Group(plan, name, folder, environment.get("PET_RDZV_ID", ""), outcome, restarts, script)


def variables(plan: Mapping[str, Any], name: str, per_node: int = 1) -> dict[str, str]:
    """The plan in torchrun's variables: how many nodes there may be, and the node's own address."""
    nodes = plan["nodes"]
    address = str(nodes[name][0])
    files = {FIRST_FILE: str(event_file_of(plan, name, per_node)(0))} if plan.get("apart") else {}
    return {
        "PET_NNODES": f"{plan['least']}:{len(nodes) - len(plan.get('spares', ())) - bool(plan.get('arbiter'))}",
        "PET_RDZV_BACKEND": BACKEND,
        "PET_RDZV_ENDPOINT": meeting.endpoint(address, 0),
        "PET_LOCAL_ADDR": address,
        "PET_MAX_RESTARTS": _UNLIMITED_RESTARTS,
        **files,
    }


def take_plan(environment: MutableMapping[str, str]) -> dict[str, Any] | None:
    """The plan of this node's group, taken out of the environment so that no other process gets the key."""
    text = environment.pop(GROUP, "")
    return dict(json.loads(text)) if text else None
