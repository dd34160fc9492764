"""Where a run stands, as a value that grows by events. Pure: no clock, no files; watch.py brings the events.

Events are the ranks' own (docs/contract.md) and those that watch.py makes of what else it sees:
`node_up` (nodes/<node>.json), `node` (the backend's NodeState), `metrics` (metrics.jsonl), `verdict` (outcome/*.json),
`left` (a rank ended with 0 while others go on), `unread` (lines that could not be read). All have been checked by
events.py. A node's agent tells of each rank that it `began` and `ended`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ..core.facts import NodeState, ended_how
from ..core.text import percent
from .blame import Blame, End, blame
from .events import Event


@dataclass
class RankView:
    """One rank's last words; times are mean milliseconds a step."""

    rank: int
    node: str
    pid: int = 0
    step: int = 0
    step_ms: float = 0.0
    data_ms: float = 0.0
    compute_ms: float = 0.0
    wait_ms: float = 0.0
    training: bool = False


@dataclass(frozen=True)
class Happening:
    """One line of the run's story; `grave` marks what a reader should not miss."""

    t: float
    text: str
    grave: bool = False


@dataclass
class State:
    """A run as far as its events tell. `names` are the planned nodes by place; times `t` are unix seconds.

    A `script` of the user's tells nothing of steps and checkpoints. `began` and `ends` are of the present attempt: the
    node of each rank, and how ranks ended; `left` are those of which was told that they left the others. `kept`:
    how many files, and bytes, a script left on each node.
    """

    names: tuple[str, ...]
    up: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    exited_at: dict[str, float] = field(default_factory=dict)
    ranks: dict[int, RankView] = field(default_factory=dict)
    plan: Event = field(default_factory=dict)
    backend: str = ""
    losses: list[tuple[int, float]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    pace: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=20))
    checkpoint: Event = field(default_factory=dict)
    evaluated: Event = field(default_factory=dict)
    verdicts: list[Event] = field(default_factory=list)
    began: dict[int, str] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)
    explained: bool = False
    restarts: int = 0
    barren_restarts: int = 0
    last_sign: float = 0.0
    longest_silence: float = 0.0
    story: list[Happening] = field(default_factory=list)
    script: bool = False
    unread: int = 0

    def apply(self, event: Event) -> None:
        """Take one event in. Kinds it does not know change nothing: an older control side meets a newer trainer."""
        reaction = getattr(self, f"_on_{event.get('kind')}", None)
        if reaction is not None:
            reaction(event)

    @property
    def step(self) -> int:
        """The step the run has reached: the slowest rank's."""
        return min((view.step for view in self.ranks.values()), default=0)

    @property
    def steps(self) -> int:
        """Steps planned in all; 0 before rank 0 has said."""
        return int(self.plan.get("steps", 0))

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the last 20 step reports; None before there are two."""
        if len(self.pace) < 2 or not self.steps:
            return None
        (t_first, first), (t_last, last) = self.pace[0], self.pace[-1]
        return (self.steps - last) * (t_last - t_first) / (last - first) if last > first else None

    def rank_of(self, node: str) -> RankView | None:
        """The (first) rank on a node, once it has spoken."""
        return next((view for _, view in sorted(self.ranks.items()) if view.node == node), None)

    def blame(self) -> Blame | None:
        """Who is to blame for the ends of the present attempt, by what the nodes' agents told of them."""
        return blame(self.began, list(self.ends.values()))

    def name(self, node: str) -> str:
        """A node with its rank, as messages name it: `worker-2 (rank 2)`."""
        view = self.rank_of(node)
        return f"{node} (rank {view.rank})" if view else node

    def _tell(self, event: Event, text: str, grave: bool = False) -> None:
        self.story.append(Happening(float(event.get("t", 0.0)), text, grave))

    def _sign(self, event: Event) -> None:
        t = float(event.get("t", 0.0))
        if self.last_sign and any(view.training for view in self.ranks.values()):
            self.longest_silence = max(self.longest_silence, t - self.last_sign)
        self.last_sign = max(self.last_sign, t)

    def _on_node_up(self, event: Event) -> None:
        self.up.setdefault(event["node"], float(event["t"]))
        self._sign(event)

    def _on_node(self, event: Event) -> None:
        now = NodeState(event["node"], event["state"], event.get("code"), event.get("restarts", 0))
        before = self.nodes.get(now.node, NodeState(now.node, "waiting"))
        self.nodes[now.node] = now
        self.exited_at.pop(now.node, None)
        if now.restarts > before.restarts and not self.verdicts:  # once the end is known, nobody waits for it
            if now.code is None:  # a node that lost the others ends as well: nobody is blamed before more is known
                self._tell(event, f"{now.node} is started again{self._at_step()}")
            else:
                how = ended_how(now.code)
                self._tell(event, f"{self.name(now.node)} {how}{self._at_step()}: starting it again", grave=True)
                self.explained = True
            self._sign(event)
        if now.state in ("exited", "lost"):
            self.exited_at[now.node] = float(event["t"])

    def _on_started(self, event: Event) -> None:
        rank = int(event["rank"])
        # By its pid it cannot be told: each life of a container counts them from 1.
        again = rank in self.ranks
        step = self.ranks[rank].step if again else 0
        self.ranks[rank] = RankView(rank, event["node"], int(event.get("pid", 0)), step)
        self.backend = event.get("backend", self.backend)
        if rank == 0 and again:
            self.restarts += 1
            self.barren_restarts += 1
            self.pace.clear()
            self._tell(event, f"all ranks start again (restart {self.restarts}){self._why_again()}")
        self._sign(event)

    def _on_plan(self, event: Event) -> None:
        if not self.plan:
            self._tell(event, f"training {event.get('recipe', '')}: {event.get('samples', 0):,} samples")
        self.plan = event
        self._sign(event)

    def _on_resumed(self, event: Event) -> None:
        self._tell(event, f"goes on from step {event['step']}")
        for change in event.get("changes", ()):
            self._tell(event, str(change))

    def _on_step(self, event: Event) -> None:
        view = self.ranks.setdefault(int(event["rank"]), RankView(int(event["rank"]), event["node"]))
        view.training, view.step = True, int(event["step"])
        for name in ("step_ms", "data_ms", "compute_ms", "wait_ms"):
            setattr(view, name, float(event.get(name, 0.0)))
        if view.rank == 0:
            self.pace.append((float(event["t"]), view.step))
            self.barren_restarts = 0
        self._sign(event)

    def _on_metrics(self, event: Event) -> None:
        if "loss" in event:
            self.losses.append((int(event["step"]), float(event["loss"])))
        if event.get("samples_per_s"):
            self.rates.append(float(event["samples_per_s"]))
        self._sign(event)

    def _on_checkpoint(self, event: Event) -> None:
        self.checkpoint = event
        self._sign(event)

    def _on_checkpoint_failed(self, event: Event) -> None:
        self._tell(event, f"checkpoint at step {event.get('step')} failed: {event.get('message', '')}", grave=True)

    def _on_checkpoint_damaged(self, event: Event) -> None:
        self._tell(event, f"passed over a damaged checkpoint: {event.get('message', '')}", grave=True)

    def _on_evaluated(self, event: Event) -> None:
        self.evaluated = event
        values = event.get("values", {})
        said = [f"held-out {name} {value:.3g}" for name, value in values.items() if name != "accuracy"]
        if "accuracy" in values:
            said.insert(0, f"held-out accuracy {percent(values['accuracy'])}")
        self._tell(event, f"step {event.get('step')}: {', '.join(said)}")
        self._sign(event)

    def _on_stopping(self, event: Event) -> None:
        if int(event.get("rank", 0)) == 0:
            self._tell(event, f"stopping at step {event.get('step')}: {event.get('message', '')}")
        self._sign(event)

    def _on_began(self, event: Event) -> None:
        rank = event["rank"]
        self.began[rank] = event["node"]
        self.left.discard(rank)
        if self.script:  # our own ranks tell themselves when all have begun again
            self.ends.pop(rank, None)

    def _on_ended(self, event: Event) -> None:
        rank, node, code = event["rank"], event["node"], event["code"]
        if self.began.get(rank) != node:  # of a start before this one: its last lines came home late
            return
        how = event.get("how") or ended_how(code)
        end = End(rank, node, code, event["t"], how, event.get("victim", False), event.get("error", ""))
        self.ends[rank] = end
        # Exit codes are told where all start again, or by a verdict.
        if code < 0 and not end.victim:
            self.explained = True
            self._tell(event, f"{node} (rank {rank}) {how}{self._at_step()}", grave=True)

    def _on_kept(self, event: Event) -> None:
        self.kept[event["node"]] = (event["files"], event["bytes"])

    def _on_left(self, event: Event) -> None:
        rank = event["rank"]
        self.left.add(rank)
        self._tell(event, f"{self.ends[rank].node} (rank {rank}) left with code 0; the others go on", grave=True)

    def _why_again(self) -> str:
        """Why all ranks start again, unless a lost rank or node, told already, explains it."""
        found, explained = self.blame(), self.explained
        self.ends, self.explained = {}, False
        if explained or found is None:
            return ""
        where = f"; logs/rank-{found.rank}.log has its last words" if found.rank is not None else ""
        return f": {found.message}{where}"

    def _on_unread(self, event: Event) -> None:
        before, self.unread = self.unread, self.unread + event["count"]
        # Told at the first, and each time that there are ten times as many.
        if len(str(self.unread)) > len(str(before)) or not before:
            many = f"{self.unread:,} lines so far" if self.unread > 1 else "a line"
            self._tell(event, f"{event['where']}: passed over what could not be read: {many}")

    def _on_verdict(self, event: Event) -> None:
        self.verdicts.append(event)

    def _at_step(self) -> str:
        return f" at step {self.step}" if self.step else ""
