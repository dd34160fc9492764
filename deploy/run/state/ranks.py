"""What is known about each rank of a run, updated with each event. Pure: no clock, no files; follow.py passes events.

When all ranks start, their records begin anew: what they did in an earlier start no longer matters.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from ...causes.end_causes import Cause
from ...core.facts import ended_how
from ...core.text import step_words
from ..events import Event, changes_nodes, react
from ..inquest import hang
from ..inquest.blame import End
from ..inquest.collectives import Call, calls
from ..inquest.hang import RankDoing
from .launchers import Launchers
from .times import Span

_PACES, _DIGESTS = 200, 8
# Reports from different hosts arrive at different times: that a rank began may be known before the change of the nodes
# that it belongs to.
_APART_S = 2.0
# The kinds of events that show that a run is alive. Telemetry does not: a node whose ranks hang still reports it.
_SIGNS = ("node_up", "started", "plan", "step", "metrics", "checkpoint", "evaluated", "stopping", "waits")


@dataclass(frozen=True)
class StepTime:
    """How a rank spent the `count` steps that end with `step`, at `t`: mean milliseconds per step.

    `wait` is 0 if it is not known; `compute` then includes it.
    """

    step: int
    count: int
    data: float
    compute: float
    wait: float
    whole: float
    wait_known: bool = True
    t: float = 0.0

    @property
    def own(self) -> float:
        """How long the rank itself works in a step."""
        return self.data + self.compute


@dataclass
class RankView:
    """The step that a rank has reached, and its last report of a step; None before it trains."""

    rank: int
    node: str
    step: int = 0
    time: StepTime | None = None


@dataclass(frozen=True)
class RankLinks:
    """The connections of a rank, as pairs of addresses: `unanswered` by the other end, or `crowded`: much unsent data.

    `silent` and `answering`: the other machine did not answer, or answered, a call that is tried while a link fails.
    """

    t: float
    node: str
    unanswered: tuple[tuple[str, str], ...]
    crowded: tuple[tuple[str, str], ...]
    silent: tuple[tuple[str, str], ...] = ()
    answering: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ThrottledRank:
    """A CPU limit of `cpus` processors holds a rank back in `percent` of the kernel's periods, since `t`."""

    t: float
    percent: float
    cpus: float


@dataclass(frozen=True)
class LoneRank:
    """A rank that trains alone, as its agent reported at `t`: `why` nothing joins it to the others, and a `hint`.

    `waits`: it does not train, but waits for others where none of them comes.
    """

    t: float
    why: str
    hint: str
    waits: bool = False


@dataclass(frozen=True)
class StuckRank:
    """A rank that is stuck: since when, when its agent reported it, and what the rank is doing."""

    since: float
    reported: float
    doing: RankDoing


@dataclass
class Ranks:
    """The ranks of a run. `script`: they run a user's script. `least`: the run needs that many nodes (0: all)."""

    script: bool = False
    least: int = 0
    span: Span = field(default_factory=Span)
    launchers: Launchers = field(default_factory=Launchers)
    # The number of ranks, from the newest start that reported it, and that start's time; 0: not reported yet.
    size: int = 0
    size_t: float = 0.0
    # What each rank reported last, the plan for all ranks, and how they communicate (gloo, nccl).
    views: dict[int, RankView] = field(default_factory=dict)
    plan: Event = field(default_factory=dict)
    backend: str = ""
    # The current attempt: each rank's node, when it began, how ranks ended, and which left before the others.
    began: dict[int, str] = field(default_factory=dict)
    began_at: dict[int, float] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    # What the agents report about ranks that are stuck, have ended, or are held back.
    called: dict[int, tuple[Call, ...]] = field(default_factory=dict)
    stuck: dict[int, StuckRank] = field(default_factory=dict)
    links: dict[int, RankLinks] = field(default_factory=dict)
    throttled: dict[int, ThrottledRank] = field(default_factory=dict)
    alone: dict[int, LoneRank] = field(default_factory=dict)
    paces: dict[int, deque[StepTime]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=_PACES)))
    # Digests of the weights, by step and rank; whether all ranks of this start have had the same weights at some step.
    digests: dict[int, dict[int, str]] = field(default_factory=dict)
    alike: bool = False
    # What the nodes wait for on their hosts before the ranks start; empty if they do not wait.
    waiting: str = ""
    # The role of each node, in a run of several roles; the ranks of each role train together.
    roles: Mapping[str, str] = field(default_factory=dict)
    # How often each rank has begun: since the nodes last changed; and, for a script, in the whole run.
    starts: Counter[int] = field(default_factory=Counter)
    lives: Counter[int] = field(default_factory=Counter)
    # How often all ranks restarted; how often a script started because the nodes changed; restarts without a step.
    restarts: int = 0
    regroups: int = 0
    barren_restarts: int = 0
    # The nodes that train have changed, and no rank has reported yet from which step they train.
    regrouping: bool = False
    # A script's step when the nodes changed; whether steps may count twice because the start's first step is not known.
    reached: int = 0
    repeats: bool = False
    # When a rank last made a step; when the last sign of life arrived here, and when it was sent; the longest time
    # between two signs while the ranks trained.
    moved: float = 0.0
    last_sign: float = 0.0
    given: float = 0.0
    longest_silence: float = 0.0

    def renumbered(self, event: Event) -> Event:
        """The event, with the right number for a command that starts its ranks; its records move to a new number."""
        if moved := self.launchers.meet(event):
            for known in (*self._by_rank(), *self._of_this_start()):
                of_moved = {now: known.pop(before) for before, now in moved.items() if before in known}
                known.update(of_moved)
        return self.launchers.renumbered(event)

    def take_world(self, event: Event) -> bool:
        """Record the number of ranks from an event. False for a late event from a rank that no longer exists."""
        t, rank = float(event.get("t", 0.0)), event.get("rank")
        if event.get("kind") == "started":
            if event.get("world") and t >= self.size_t and not self.roles:
                self.size, self.size_t = int(event["world"]), t
            self._forget_others()
        return not (isinstance(rank, int) and self.size and rank >= self.size and t < self.size_t)

    def starts_again(self, event: Event) -> bool:
        """Whether an event, which has not been applied yet, is the first to show that all ranks start again.

        Muster's own trainer itself reports that it starts. For a script, the nodes' agents do; in a run that continues
        without lost nodes, the node with rank 0 has already reported each change of the nodes.
        """
        rank = event.get("rank")
        if event.get("kind") == "started":
            return rank == 0 and rank in self.views and not self.script and not self.regrouping
        if event.get("kind") != "began" or not self.script or (rank and self.least) or self.roles:
            return False
        return self.lives[event["rank"]] > self.restarts + self.regroups

    def apply(self, event: Event, t: float, now: float = 0.0) -> None:
        """Apply an event that happened at `t` by this machine's clock, and arrives at `now` (0: not known)."""
        self.span.take(event)
        if self.starts_again(event):
            self.restarts += 1
            self.barren_restarts += not self.script
        react(self, event, t)
        if event.get("kind") in _SIGNS:
            self.show_life(event, now)

    def show_life(self, event: Event, now: float = 0.0) -> None:
        """Record a sign of life. `now` is kept, too: the host's clock may be far behind this machine's."""
        t = float(event.get("t", 0.0))
        silence = t - self.given if self.given and self.moved else 0.0
        if silence > self.longest_silence and any(view.time for view in self.views.values()):
            self.longest_silence = silence
        self.given, self.last_sign = max(self.given, t), max(self.last_sign, now or t)

    @property
    def step(self) -> int:
        """The step that the run has reached: the step of the slowest rank."""
        return min((view.step for view in self.views.values()), default=self.reached)

    @property
    def step_words(self) -> str:
        """The step in words, with a remark if repeated steps are counted twice."""
        return step_words(self.step, self.repeats)

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
        """The node's only rank; None if the node has no rank, or several."""
        ranks = self.ranks_on(node)
        return ranks[0] if len(ranks) == 1 else None

    def view_of(self, node: str) -> RankView | None:
        """The first rank on a node that has reported anything."""
        return min((view for view in self.views.values() if view.node == node), key=attrgetter("rank"), default=None)

    def trains(self, node: str) -> bool:
        """Whether a node has the role of rank 0, which trains; the ranks of other roles wait for requests."""
        return self.roles.get(node, "") == self.roles.get(self.began.get(0, ""), "")

    def node_name(self, node: str) -> str:
        """A node with its rank, as messages name it: `worker-2 (rank 2)`."""
        view, role = self.view_of(node), self.roles.get(node, "")
        who = f"{role} on {node}" if role and role not in node else node
        return f"{who} (rank {view.rank})" if view and len(self.launchers.ranks_of(node)) < 2 else who

    def _by_rank(self) -> tuple[dict[int, Any], ...]:
        return self.began, self.began_at, self.starts, self.lives, self.throttled

    def _of_this_start(self) -> tuple[dict[int, Any], ...]:
        return self.ends, self.called, self.stuck, self.links, self.paces, self.alone

    def _forget_others(self) -> None:
        """Remove the ranks that no longer exist."""
        others = {*self.views, *self.began, *self.starts, *self.lives} if self.size else set[int]()
        for rank in (rank for rank in others if rank >= self.size):
            for known in (self.views, *self._by_rank(), *self._of_this_start()):
                known.pop(rank, None)

    def _settle(self) -> None:
        """Forget what ranks did before all ranks start again: it explains nothing that happens later."""
        for known in (*self._of_this_start(), self.digests):
            known.clear()
        self.alike = False

    def _on_started(self, event: Event, t: float) -> None:
        rank = int(event["rank"])
        # A script's rank knows only its own host's steps, and the host may have missed some.
        begins = max(int(event.get("step") or self.plan.get("start_step", 0)), self.reached)
        step = self.views[rank].step if rank in self.views else begins
        self.views[rank] = RankView(rank, event["node"], step)
        self.backend = event.get("backend", self.backend)

    def _on_began(self, event: Event, t: float) -> None:
        rank, self.waiting = event["rank"], ""
        self.starts[rank] += 1
        self.lives[rank] += self.script  # the ranks of Muster's own trainer themselves report that all have restarted
        if self.starts[rank] > 1 and self.starts[rank] == max(self.starts.values()) and rank in self.ends | self.stuck:
            self._settle()
        for known in (*self._of_this_start(), self.throttled):
            known.pop(rank, None)
        self.began[rank], self.began_at[rank] = event["node"], t
        self.left.discard(rank)

    def _on_members(self, event: Event, t: float) -> None:
        """If other nodes train from now on, the ranks get other numbers and nodes."""
        if not changes_nodes(event):
            return
        self.reached = self.step if self.script else 0  # Muster's own trainer reports at which step it continues
        self._settle()
        self.began = {rank: node for rank, node in self.began.items() if self.began_at[rank] >= t - _APART_S}
        self.views = {rank: view for rank, view in self.views.items() if self.began.get(rank) == view.node}
        self.starts = Counter(self.began.keys())
        self.regroups += self.script
        self.regrouping = not self.script

    def _on_plan(self, event: Event, t: float) -> None:
        self.plan, self.regrouping = event, False
        if start := int(event.get("start_step", 0)):
            for view in self.views.values():  # including the ranks of a new node
                view.step = max(view.step, start)

    def _on_resumed(self, event: Event, t: float) -> None:
        self.regrouping = False

    def _on_step(self, event: Event, t: float) -> None:
        rank, time = int(event["rank"]), step_time(event, t)
        view = self.views.setdefault(rank, RankView(rank, event["node"]))
        view.step, view.time, self.moved = time.step, time, max(self.moved, t)
        if rank == 0:
            self.barren_restarts = 0
        if time.wait_known:
            self.paces[rank].append(time)

    def _on_continues(self, event: Event, t: float) -> None:
        """Record the step at which a script continues. If its optimizer reports it, repeated steps count only once."""
        rank = int(event["rank"])
        self.views.setdefault(rank, RankView(rank, event["node"])).step = int(event["step"])
        self.repeats = self.repeats or not event["known"]

    def _on_waits(self, event: Event, t: float) -> None:
        """The nodes of a run wait on their hosts (`muster deploy --wait`)."""
        if float(event.get("t", 0.0)) >= self.span.since:
            self.waiting = event["why"]

    def _on_ended(self, event: Event, t: float) -> None:
        rank = event["rank"]
        if self.began.get(rank) != event["node"]:  # the event is from an earlier start, whose last lines arrived late
            return
        self.ends[rank] = end_of(event, t)
        self.called[rank] = calls(event.get("collectives", ()))
        self.stuck.pop(rank, None)
        self.links.pop(rank, None)

    def _on_left(self, event: Event, t: float) -> None:
        self.left.add(event["rank"])

    def _on_stuck(self, event: Event, t: float) -> None:
        doing, before = hang.read(event), self.stuck.get(event["rank"])
        if before and before.doing.doing in ("stopped", "traced", "frozen") and doing.doing == "unseen":
            return  # a stopped rank answers no look, so nothing shows that it runs again
        self.stuck[event["rank"]] = StuckRank(t - doing.since_s, t, doing)
        self.called[event["rank"]] = doing.collectives

    def _on_moves(self, event: Event, t: float) -> None:
        self.stuck.pop(event["rank"], None)

    def _on_links(self, event: Event, t: float) -> None:
        # Nodes on one machine have the same address, and no link between them.
        unanswered, crowded, *called = (
            tuple((own, peer) for own, peer in event.get(name) or () if own != peer)
            for name in ("unanswered", "crowded", "silent", "answering")
        )
        before = self.links.get(event["rank"])
        since = before.t if before and before.unanswered and unanswered else t
        self.links[event["rank"]] = RankLinks(since, event["node"], unanswered, crowded, *called)

    def _on_throttled(self, event: Event, t: float) -> None:
        self.throttled[event["rank"]] = ThrottledRank(t, event["percent"], event["cpus"])
        if not event["percent"]:
            del self.throttled[event["rank"]]

    def _on_alone(self, event: Event, t: float) -> None:
        self.alone[event["rank"]] = LoneRank(t, event["why"], event.get("hint", ""), event.get("waits", False))
        if not event["why"]:
            del self.alone[event["rank"]]

    def _on_weights(self, event: Event, t: float) -> None:
        self.digests.setdefault(event["step"], {})[event["rank"]] = event["digest"]
        for step in sorted(self.digests)[:-_DIGESTS]:
            del self.digests[step]
        of = self.digests.get(event["step"], {})
        self.alike = self.alike or (len(of) == len(self.began) > 1 and len(set(of.values())) == 1)


def step_time(event: Event, t: float) -> StepTime:
    """How a rank spent its last steps, from an event `step` at `t`."""
    data, compute, wait, whole = (float(event.get(f"{name}_ms", 0.0)) for name in ("data", "compute", "wait", "step"))
    whole, count = max(whole, data + compute + wait), max(1, event.get("count", 1))
    return StepTime(int(event["step"]), count, data, compute, wait, whole, "wait_ms" in event, t)


def by_node(began: Mapping[int, str]) -> dict[str, list[int]]:
    """The ranks of each node. `began`: the node of each rank."""
    ranks: dict[str, list[int]] = {}
    for rank, node in began.items():
        ranks.setdefault(node, []).append(rank)
    return ranks


def end_of(event: Event, t: float) -> End:
    """How a rank ended at `t`, from an event `ended`."""
    how = event.get("how") or ended_how(event["code"])
    victim, error, cause = event.get("victim", False), event.get("error", ""), Cause.of_slug(event.get("cause"))
    return End(event["rank"], event["node"], event["code"], t, how, victim, error, cause, event.get("place", ""))
