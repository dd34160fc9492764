"""What is known of why a run stands still or ended: plain records of all its ranks and nodes, event by event. Pure.

inquest.py decides from it. A start of all ranks begins with new records: what an earlier start did is settled.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import DONE
from ..core.facts import NodeState, ended_how
from . import hang
from .blame import End
from .collectives import Call, calls
from .events import Event
from .hang import RankDoing

# Clocks that differ by less do not change the order of what happened.
CLOCKS_ALIKE_S = 2.0
_LAGS, _LAGS_SPAN_S = 5, 8.0
_PACES, _DIGESTS = 200, 8
# Hosts' reports arrive apart: that a rank began may come before the word that other nodes train from now on.
_APART_S = 2.0


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
    """A rank that stands still: since when, when its agent told of it, and what it does."""

    since: float
    reported: float
    doing: RankDoing


@dataclass
class Lag:
    """How much later than a node's own time its reports arrive: with `first` as usual, by its clock of the start."""

    first: float | None = None
    recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_LAGS))

    @property
    def now(self) -> float:
        """The least of late: a report may be late for other reasons, but never early."""
        return min((lag for _, lag in self.recent), default=0.0)

    def take(self, lag: float, now: float) -> None:
        """Take a report that arrives at `now`. If several come together, the last one counts."""
        if self.recent and self.recent[-1][0] == now:
            self.recent.pop()
        self.recent.append((now, lag))
        if self.first is None and len(self.recent) == _LAGS and now - self.recent[0][0] >= _LAGS_SPAN_S:
            self.first = self.now


@dataclass
class Evidence:
    """The records. `troubles`: what a node's backend sees (NodeState) since when.

    `verdict`: a rank or node says itself why it ends. `digests`: the weights by step and rank; `alike`: they have been
    the same on all ranks of this start. `came_back`: when a node's container last started again.
    """

    began: dict[int, str] = field(default_factory=dict)
    began_at: dict[int, float] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    called: dict[int, tuple[Call, ...]] = field(default_factory=dict)
    still: dict[int, Still] = field(default_factory=dict)
    links: dict[int, LinksOf] = field(default_factory=dict)
    throttled: dict[int, Throttled] = field(default_factory=dict)
    alone: dict[int, Alone] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    troubles: dict[str, tuple[str, float]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    paces: dict[int, deque[Pace]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=_PACES)))
    digests: dict[int, dict[int, str]] = field(default_factory=dict)
    alike: bool = False
    cpus: dict[str, float] = field(default_factory=dict)
    halted: dict[str, tuple[str, float]] = field(default_factory=dict)
    lags: dict[str, Lag] = field(default_factory=dict)
    verdict: bool = False
    moved: float = 0.0
    starts: Counter[int] = field(default_factory=Counter)
    came_back: dict[str, float] = field(default_factory=dict)

    def take(self, event: Event, now: float) -> None:
        """Take an event that arrives at `now`."""
        self._take_lag(event, now)
        reader = getattr(self, f"_on_{event.get('kind')}", None)
        if reader is not None:
            reader(event, self.aligned(event, now))

    def aligned(self, event: Event, now: float) -> float:
        """When it happened, by this machine's clock."""
        t, lag = float(event.get("t") or now), self.lags.get(str(event.get("node", "")))
        return t + lag.now if lag and lag.first is not None and abs(lag.now) > CLOCKS_ALIKE_S else t

    @property
    def living(self) -> dict[int, str]:
        """The node of each rank that has not ended, on nodes that somebody sees."""
        away = self.troubles.keys()
        return {rank: node for rank, node in self.began.items() if rank not in self.ends and node not in away}

    @property
    def by_rank(self) -> tuple[dict[int, Any], ...]:
        """What is known of each rank."""
        of_start = (self.ends, self.called, self.still, self.links, self.throttled, self.alone, self.paces)
        return (self.began, self.began_at, self.starts, *of_start)

    def only_rank(self, node: str) -> int | None:
        """The rank of a node that has one; None where it has none, or several."""
        ranks = self.ranks_of(node)
        return ranks[0] if len(ranks) == 1 else None

    def ranks_of(self, node: str) -> list[int]:
        """The ranks of a node."""
        return [rank for rank, where in self.began.items() if where == node]

    def node_at(self, address: str) -> str:
        """The node that has an address; the address itself if it is unknown."""
        return self.addresses.get(address, address)

    def _take_lag(self, event: Event, now: float) -> None:
        if event.get("kind") != "telemetry" or not event.get("t"):
            return
        self.lags.setdefault(str(event.get("node", "")), Lag()).take(now - float(event["t"]), now)

    def _on_began(self, event: Event, t: float) -> None:
        rank = event["rank"]
        self.starts[rank] += 1
        if self.starts[rank] > 1 and self.starts[rank] == max(self.starts.values()) and rank in self.ends | self.still:
            self._settle()
        for known in (self.ends, self.called, self.still, self.links, self.throttled, self.alone):
            known.pop(rank, None)
        self.paces.pop(rank, None)
        self.began[rank], self.began_at[rank] = event["node"], t

    def _settle(self) -> None:
        """All ranks start again: what they did before explains nothing of what comes."""
        for known in (self.ends, self.called, self.still, self.links, self.paces, self.digests, self.alone):
            known.clear()
        self.alike = False

    def _on_members(self, event: Event, t: float) -> None:
        """Other nodes train from now on: ranks get other numbers and nodes."""
        if event["members"] != event["before"]:
            self._settle()
            self.began = {rank: node for rank, node in self.began.items() if self.began_at[rank] >= t - _APART_S}
            self.starts = Counter(self.began.keys())

    def _on_ended(self, event: Event, t: float) -> None:
        rank, code = event["rank"], event["code"]
        if self.began.get(rank) != event["node"]:
            return
        how = event.get("how") or ended_how(code)
        self.ends[rank] = End(rank, event["node"], code, t, how, event.get("victim", False), event.get("error", ""))
        self.called[rank] = calls(event.get("collectives", ()))
        self.still.pop(rank, None)
        self.links.pop(rank, None)

    def _on_stuck(self, event: Event, t: float) -> None:
        doing, before = hang.read(event), self.still.get(event["rank"])
        if before and before.doing.doing in ("stopped", "traced") and doing.doing == "unseen":
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
        self.addresses |= {own: event["node"] for own, _ in (*unanswered, *crowded)}

    def _on_throttled(self, event: Event, t: float) -> None:
        self.throttled[event["rank"]] = Throttled(t, event["percent"], event["cpus"])
        if not event["percent"]:
            del self.throttled[event["rank"]]

    def _on_alone(self, event: Event, t: float) -> None:
        self.alone[event["rank"]] = Alone(t, event["why"], event.get("hint", ""), event.get("waits", False))
        if not event["why"]:
            del self.alone[event["rank"]]

    def _on_node_up(self, event: Event, t: float) -> None:
        address = event.get("address")
        if isinstance(address, str) and address:
            self.addresses[address] = event["node"]

    def _on_node(self, event: Event, t: float) -> None:
        node, trouble = event["node"], event.get("trouble", "")
        if node in self.nodes and event.get("restarts", 0) > self.nodes[node].restarts:
            self.came_back[node] = t
        self.nodes[node] = NodeState(node, event["state"], event.get("code"), event.get("restarts", 0), trouble)
        if not trouble:
            self.troubles.pop(node, None)
        elif self.troubles.get(node, ("", 0.0))[0] != trouble:
            self.troubles[node] = trouble, t

    def _on_step(self, event: Event, t: float) -> None:
        self.moved = max(self.moved, t)
        data, compute, wait = (float(event.get(f"{name}_ms", 0.0)) for name in ("data", "compute", "wait"))
        if "wait_ms" in event:
            pace = Pace(t, float(event.get("step_ms", 0.0)), data + compute, data, wait, max(1, event.get("count", 1)))
            self.paces[event["rank"]].append(pace)

    def _on_weights(self, event: Event, t: float) -> None:
        self.digests.setdefault(event["step"], {})[event["rank"]] = event["digest"]
        for step in sorted(self.digests)[:-_DIGESTS]:
            del self.digests[step]
        of = self.digests.get(event["step"], {})
        self.alike = self.alike or (len(of) == len(self.began) > 1 and len(set(of.values())) == 1)

    def _on_telemetry(self, event: Event, t: float) -> None:
        node, words = event["node"], event.get("halted", "")
        self.cpus[node] = float(event.get("cpu_percent", 0.0))
        if words:
            self.halted.setdefault(node, (words, t))
        else:
            self.halted.pop(node, None)

    def _on_verdict(self, event: Event, t: float) -> None:
        self.verdict = self.verdict or event.get("verdict") != "done"


def done(ends: Mapping[int, End]) -> list[End]:
    """The ranks that ended with code 0, the first one first."""
    return sorted((end for end in ends.values() if end.code == DONE), key=lambda end: (end.t, end.rank))
