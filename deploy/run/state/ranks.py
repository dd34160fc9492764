"""What is known of each rank of a run, event by event. Pure: no clock, no files; follow.py brings the events.

A start of all ranks begins with new records: what an earlier start did is settled.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from ...causes.end_causes import Cause
from ...core.facts import ended_how
from ..events import Event, changes_nodes, react
from ..inquest import hang
from ..inquest.blame import End
from ..inquest.collectives import Call, calls
from ..inquest.hang import RankDoing
from .launchers import Launchers
from .times import Span

_PACES, _DIGESTS = 200, 8
# Hosts' reports arrive apart: that a rank began may come before the word that other nodes train from now on.
_APART_S = 2.0
# What shows that a run lives; a node whose ranks hang still has a temperature.
_SIGNS = ("node_up", "started", "plan", "step", "metrics", "checkpoint", "evaluated", "stopping", "waits")


@dataclass
class RankView:
    """The last report of one rank; times are mean milliseconds for a step. `stepped`: when it last told of one."""

    rank: int
    node: str
    step: int = 0
    step_ms: float = 0.0
    data_ms: float = 0.0
    compute_ms: float = 0.0
    wait_ms: float = 0.0
    training: bool = False
    stepped: float = 0.0


@dataclass(frozen=True)
class Pace:
    """How a rank spent the last `count` steps: mean milliseconds of one."""

    t: float
    step_ms: float
    own_ms: float
    data_ms: float
    wait_ms: float
    count: int = 1


@dataclass(frozen=True)
class LinksOf:
    """The connections of a rank, as pairs of addresses: `unanswered` by the other end, or `crowded`: always sending.

    `silent` and `answering`: whether the other machine answers a call, tried while a link fails.
    """

    t: float
    node: str
    unanswered: tuple[tuple[str, str], ...]
    crowded: tuple[tuple[str, str], ...]
    silent: tuple[tuple[str, str], ...] = ()
    answering: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Throttled:
    """A CPU limit of `cpus` processors holds a rank back in `percent` of the kernel's periods, since `t`."""

    t: float
    percent: float
    cpus: float


@dataclass(frozen=True)
class Alone:
    """A rank that trains alone, as its agent told at `t`: `why` nothing joins it to the others, and a `hint`.

    `waits`: it does not train, but waits for others where none of them comes.
    """

    t: float
    why: str
    hint: str
    waits: bool = False


@dataclass(frozen=True)
class Still:
    """A rank that is stuck: since when, when its agent told of it, and what it does."""

    since: float
    reported: float
    doing: RankDoing


@dataclass
class Ranks:
    """The ranks of a run. `script`: of a user's; `least`: so many nodes train on without the others (0: all needed)."""

    script: bool = False
    least: int = 0
    span: Span = field(default_factory=Span)
    launchers: Launchers = field(default_factory=Launchers)
    # How many there are, as the newest start says it, and when it began; 0: nobody has said it yet.
    size: int = 0
    size_t: float = 0.0
    # What each rank said last, what was planned for all, and on what they exchange (gloo, nccl).
    views: dict[int, RankView] = field(default_factory=dict)
    plan: Event = field(default_factory=dict)
    backend: str = ""
    # The present attempt: the node of each rank and since when, how ranks ended, who left before the others.
    began: dict[int, str] = field(default_factory=dict)
    began_at: dict[int, float] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    # What the agents see of a rank that is stuck, ended, or is held back.
    called: dict[int, tuple[Call, ...]] = field(default_factory=dict)
    still: dict[int, Still] = field(default_factory=dict)
    links: dict[int, LinksOf] = field(default_factory=dict)
    throttled: dict[int, Throttled] = field(default_factory=dict)
    alone: dict[int, Alone] = field(default_factory=dict)
    paces: dict[int, deque[Pace]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=_PACES)))
    # The weights by step and rank; whether they have been the same on all ranks of this start.
    digests: dict[int, dict[int, str]] = field(default_factory=dict)
    alike: bool = False
    # What the nodes wait for on their hosts before the ranks start.
    waiting: str = ""
    # The role of each node, in a run of several; each has ranks of its own that train together.
    roles: Mapping[str, str] = field(default_factory=dict)
    # How often each rank has begun: since the nodes changed, and of a script ever.
    starts: Counter[int] = field(default_factory=Counter)
    lives: Counter[int] = field(default_factory=Counter)
    # How often all started again; after how many changes of the nodes a script began; starts without a step.
    restarts: int = 0
    regroups: int = 0
    barren_restarts: int = 0
    # Other nodes train from now on, and nobody has said yet at which step.
    regrouping: bool = False
    # A script's step when other nodes began to train; whether steps may count twice, as nobody knows where it began.
    reached: int = 0
    repeats: bool = False
    # When a rank last made a step; when a sign of life last came here, when it was given, and for how long none was
    # while they trained.
    moved: float = 0.0
    last_sign: float = 0.0
    given: float = 0.0
    longest_silence: float = 0.0

    def placed(self, event: Event) -> Event:
        """The event with the number of a command that starts its ranks itself; what is known of one moves with it."""
        if moved := self.launchers.meet(event):
            for known in (*self._by_rank(), *self._of_this_start()):
                of_moved = {now: known.pop(before) for before, now in moved.items() if before in known}
                known.update(of_moved)
        return self.launchers.placed(event)

    def take_world(self, event: Event) -> bool:
        """Take what an event says of the number of ranks. False for one of a rank that there is no more: it is late."""
        t, rank = float(event.get("t", 0.0)), event.get("rank")
        if event.get("kind") == "started":
            if event.get("world") and t >= self.size_t and not self.roles:
                self.size, self.size_t = int(event["world"]), t
            self._forget_others()
        return not (isinstance(rank, int) and self.size and rank >= self.size and t < self.size_t)

    def starts_again(self, event: Event) -> bool:
        """Whether an event, which is not applied yet, shows that all ranks start again: the first of them tells it.

        Muster's trainer says itself that it starts. Of a script the nodes' agents do; where nodes go on without
        others, each change of them has been told already, by the node that has rank 0.
        """
        rank = event.get("rank")
        if event.get("kind") == "started":
            return rank == 0 and rank in self.views and not self.script and not self.regrouping
        if event.get("kind") != "began" or not self.script or (rank and self.least) or self.roles:
            return False
        return self.lives[event["rank"]] > self.restarts + self.regroups

    def apply(self, event: Event, t: float, now: float = 0.0) -> None:
        """Apply an event, which happened at `t` by this machine's clock, and arrives at `now` (0: nobody knows)."""
        self.span.take(event)
        if self.starts_again(event):
            self.restarts += 1
            self.barren_restarts += not self.script
        react(self, event, t)
        if event.get("kind") in _SIGNS:
            self.show_life(event, now)

    def show_life(self, event: Event, now: float = 0.0) -> None:
        """The run lives, as an event shows: its host's clock may be far behind the one that judges its silence."""
        t = float(event.get("t", 0.0))
        silence = t - self.given if self.given and self.moved else 0.0
        if silence > self.longest_silence and any(view.training for view in self.views.values()):
            self.longest_silence = silence
        self.given, self.last_sign = max(self.given, t), max(self.last_sign, now or t)

    @property
    def step(self) -> int:
        """The step the run has reached: the slowest rank's."""
        return min((view.step for view in self.views.values()), default=self.reached)

    @property
    def step_words(self) -> str:
        """The step in words."""
        return f"step {self.step}" + (" (including repeated steps)" if self.repeats else "")

    @property
    def at_step(self) -> str:
        """` at step 7`; empty before the first."""
        return f" at {self.step_words}" if self.step else ""

    @property
    def steps(self) -> int:
        """How many steps are planned; 0 before rank 0 has reported it."""
        return int(self.plan.get("steps", 0))

    def ranks_on(self, node: str) -> list[int]:
        """The ranks of a node."""
        return [rank for rank, where in self.began.items() if where == node]

    def only_rank(self, node: str) -> int | None:
        """The rank of a node that has one; None where it has none, or several."""
        ranks = self.ranks_on(node)
        return ranks[0] if len(ranks) == 1 else None

    def view_of(self, node: str) -> RankView | None:
        """The first rank on a node that has reported anything."""
        return min((view for view in self.views.values() if view.node == node), key=attrgetter("rank"), default=None)

    def trains(self, node: str) -> bool:
        """Whether the ranks of a node are of the role that has rank 0: those of the others wait for requests."""
        return self.roles.get(node, "") == self.roles.get(self.began.get(0, ""), "")

    def node_name(self, node: str) -> str:
        """A node with its rank, as messages name it: `worker-2 (rank 2)`."""
        view, role = self.view_of(node), self.roles.get(node, "")
        who = f"{role} on {node}" if role and role not in node else node
        return f"{who} (rank {view.rank})" if view and len(self.launchers.ranks_of(node)) < 2 else who

    def _by_rank(self) -> tuple[dict[int, Any], ...]:
        return self.began, self.began_at, self.starts, self.lives, self.throttled

    def _of_this_start(self) -> tuple[dict[int, Any], ...]:
        return self.ends, self.called, self.still, self.links, self.paces, self.alone

    def _forget_others(self) -> None:
        """Remove the ranks that there are no more."""
        others = {*self.views, *self.began, *self.starts, *self.lives} if self.size else set[int]()
        for rank in (rank for rank in others if rank >= self.size):
            for known in (self.views, *self._by_rank(), *self._of_this_start()):
                known.pop(rank, None)

    def _settle(self) -> None:
        """All ranks start again: what they did before explains nothing of what comes."""
        for known in (*self._of_this_start(), self.digests):
            known.clear()
        self.alike = False

    def _on_started(self, event: Event, t: float) -> None:
        rank = int(event["rank"])
        # A script's rank knows the steps of its own host, which may have been away meanwhile.
        begins = max(int(event.get("step") or self.plan.get("start_step", 0)), self.reached)
        step = self.views[rank].step if rank in self.views else begins
        self.views[rank] = RankView(rank, event["node"], step)
        self.backend = event.get("backend", self.backend)

    def _on_began(self, event: Event, t: float) -> None:
        rank, self.waiting = event["rank"], ""
        self.starts[rank] += 1
        self.lives[rank] += self.script  # the trainer's own ranks report themselves that all have restarted
        if self.starts[rank] > 1 and self.starts[rank] == max(self.starts.values()) and rank in self.ends | self.still:
            self._settle()
        for known in (*self._of_this_start(), self.throttled):
            known.pop(rank, None)
        self.began[rank], self.began_at[rank] = event["node"], t
        self.left.discard(rank)

    def _on_members(self, event: Event, t: float) -> None:
        """Other nodes train from now on: ranks get other numbers and nodes."""
        if not changes_nodes(event):
            return
        self.reached = self.step if self.script else 0  # the trainer says at which step it goes on
        self._settle()
        self.began = {rank: node for rank, node in self.began.items() if self.began_at[rank] >= t - _APART_S}
        self.views = {rank: view for rank, view in self.views.items() if self.began.get(rank) == view.node}
        self.starts = Counter(self.began.keys())
        self.regroups += self.script
        self.regrouping = not self.script

    def _on_plan(self, event: Event, t: float) -> None:
        self.plan, self.regrouping = event, False
        if start := int(event.get("start_step", 0)):
            for view in self.views.values():  # of a node that is new, too
                view.step = max(view.step, start)

    def _on_resumed(self, event: Event, t: float) -> None:
        self.regrouping = False

    def _on_step(self, event: Event, t: float) -> None:
        rank = int(event["rank"])
        view = self.views.setdefault(rank, RankView(rank, event["node"]))
        view.training, view.step, view.stepped, self.moved = True, int(event["step"]), t, max(self.moved, t)
        times = {name: float(event.get(f"{name}_ms", 0.0)) for name in ("step", "data", "compute", "wait")}
        view.step_ms, view.data_ms, view.compute_ms, view.wait_ms = times.values()
        if rank == 0:
            self.barren_restarts = 0
        if "wait_ms" in event:
            own, count = times["data"] + times["compute"], max(1, event.get("count", 1))
            self.paces[rank].append(Pace(t, times["step"], own, times["data"], times["wait"], count))

    def _on_continues(self, event: Event, t: float) -> None:
        """Where a start of a script begins. What it repeats counts once, if its optimizer tells where that is."""
        rank = int(event["rank"])
        self.views.setdefault(rank, RankView(rank, event["node"])).step = int(event["step"])
        self.repeats = self.repeats or not event["known"]

    def _on_waits(self, event: Event, t: float) -> None:
        """The nodes of a run wait on their hosts (`muster deploy --wait`)."""
        if float(event.get("t", 0.0)) >= self.span.since:
            self.waiting = event["why"]

    def _on_ended(self, event: Event, t: float) -> None:
        rank = event["rank"]
        if self.began.get(rank) != event["node"]:  # it belongs to an earlier start, whose last lines arrived late
            return
        self.ends[rank] = end_of(event, t)
        self.called[rank] = calls(event.get("collectives", ()))
        self.still.pop(rank, None)
        self.links.pop(rank, None)

    def _on_left(self, event: Event, t: float) -> None:
        self.left.add(event["rank"])

    def _on_stuck(self, event: Event, t: float) -> None:
        doing, before = hang.read(event), self.still.get(event["rank"])
        if before and before.doing.doing in ("stopped", "traced", "frozen") and doing.doing == "unseen":
            return  # who is stopped answers no look: nothing shows that it goes on
        self.still[event["rank"]] = Still(t - doing.since_s, t, doing)
        self.called[event["rank"]] = doing.collectives

    def _on_moves(self, event: Event, t: float) -> None:
        self.still.pop(event["rank"], None)

    def _on_links(self, event: Event, t: float) -> None:
        # The nodes of one machine have one address, and no link.
        unanswered, crowded, *called = (
            tuple((own, peer) for own, peer in event.get(name) or () if own != peer)
            for name in ("unanswered", "crowded", "silent", "answering")
        )
        before = self.links.get(event["rank"])
        since = before.t if before and before.unanswered and unanswered else t
        self.links[event["rank"]] = LinksOf(since, event["node"], unanswered, crowded, *called)

    def _on_throttled(self, event: Event, t: float) -> None:
        self.throttled[event["rank"]] = Throttled(t, event["percent"], event["cpus"])
        if not event["percent"]:
            del self.throttled[event["rank"]]

    def _on_alone(self, event: Event, t: float) -> None:
        self.alone[event["rank"]] = Alone(t, event["why"], event.get("hint", ""), event.get("waits", False))
        if not event["why"]:
            del self.alone[event["rank"]]

    def _on_weights(self, event: Event, t: float) -> None:
        self.digests.setdefault(event["step"], {})[event["rank"]] = event["digest"]
        for step in sorted(self.digests)[:-_DIGESTS]:
            del self.digests[step]
        of = self.digests.get(event["step"], {})
        self.alike = self.alike or (len(of) == len(self.began) > 1 and len(set(of.values())) == 1)


def by_node(began: Mapping[int, str]) -> dict[str, list[int]]:
    """The ranks of each node. `began`: the node of each rank."""
    ranks: dict[str, list[int]] = {}
    for rank, node in began.items():
        ranks.setdefault(node, []).append(rank)
    return ranks


def end_of(event: Event, t: float) -> End:
    """How a rank ended at `t`, as an event `ended` has it."""
    how = event.get("how") or ended_how(event["code"])
    victim, error, cause = event.get("victim", False), event.get("error", ""), Cause.of_slug(event.get("cause"))
    return End(event["rank"], event["node"], event["code"], t, how, victim, error, cause, event.get("place", ""))
