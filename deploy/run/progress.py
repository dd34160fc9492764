"""The state of a run, built up event by event. Pure: no clock, no files; follow.py brings the events.

Events are the ranks' own (docs/contract.md) and those that follow.py makes of what else it sees:
`node_up` (nodes/<node>.json), `node` (the backend's NodeState), `metrics` (metrics.jsonl), `telemetry` and `scalars`
(<node>.jsonl in folders of these names), `verdict` (outcome/*.json), `left` (a rank ended with 0 while others still
run), `unread` (lines that could not be read). events.py has checked all of them. A node's agent reports that each rank
`began` and `ended`.
"""

from __future__ import annotations

import signal
from collections import Counter, deque
from dataclasses import dataclass, field, replace

from ..core.errors import DONE, FAILED, SIGNALLED
from ..core.facts import NodeState, ended_how
from ..core.text import percent
from . import inquest, regroup, sentences
from .blame import Blame, End, blame
from .causes import Cause, Finding
from .cut import CutLink
from .events import Event
from .evidence import Evidence
from .losses import LossWatch
from .rank_view import RankView
from .returned import Named
from .span import Span
from .story import Happening, Story
from .world import World

# How a node ends that somebody killed, or the kernel: as it says it, and as a container's engine does.
_KILLED = (-signal.SIGKILL, SIGNALLED + signal.SIGKILL)
# A GPU that works hard is at its power cap most of the time.
_USUAL_THROTTLING = ("power cap",)
_MOST_THROTTLED = 1000
_MOST_SCALARS, _MOST_PATHS = 300, 5
# Ranks that stand still may move again, and stop again: the story has room for so many times.
_STANDS = (Cause.STOPPED, Cause.LOCKED_UP, Cause.MISMATCH, Cause.NOT_KNOWN, Cause.CUT_OFF, Cause.DISK_SILENT)
_MOST_TOLD = 3
# So long a run waits for a host that is lost, or a link that is cut: most machines reboot within this time.
WAIT_LOST_S = 600.0


@dataclass
class State:
    """A run as its events describe it. `names` are the planned nodes by place; times `t` are unix seconds.

    A user's `script` reports no checkpoints. `began` (the node of each rank) and `ends` belong to the present attempt;
    `left` are the ranks that were reported to have left the others. `telemetry`: the last of each node; `throttled`:
    the slow GPUs that were reported, by node and index with the reason. `kept`: how many files, and bytes, a script
    left on each node. `scalars`: by name the newest step and value in a script's files, and the file. `lives`: how
    often each rank of a script has begun. `span`: how long the ranks have run. `reached`: a script's step when other
    nodes began to train (`--min-nodes`). `conflicts`: sent files that are not used, as the console has named them.
    `repeats`: nobody knows at which step a later start of a script began, so steps may count twice. `came_back`: the
    nodes that restarted since the ranks began. `waiting`: what the nodes wait for on their hosts
    before the ranks start. `least`: so many nodes train on without the others; 0: all are needed. `members`: the nodes
    that train at present, where that is not the whole plan; `regroup`: the last change of them, and when it was, until
    the ranks say from which step they train on; `regroups`: how many of them a script began after. `evidence`: the
    records for the inquest; `finding`: the first cause in time that it has found of the present attempt, `found_at`:
    when. `wait_lost_s`: how long a lost host or link is waited for. `copied`: a node beside the first that has the
    newest checkpoints. `cut`: the link that nobody has mended, also while the ranks start again; a step shows that it
    is mended. `unexplained`: nothing had shown yet why the ranks restarted.
    """

    names: tuple[str, ...]
    wait_lost_s: float = WAIT_LOST_S
    up: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    exited_at: dict[str, float] = field(default_factory=dict)
    ranks: dict[int, RankView] = field(default_factory=dict)
    plan: Event = field(default_factory=dict)
    backend: str = ""
    losses: list[tuple[int, float]] = field(default_factory=list)
    loss_watch: LossWatch = field(default_factory=LossWatch)
    rates: list[float] = field(default_factory=list)
    pace: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=20))
    checkpoint: Event = field(default_factory=dict)
    copied: str = ""
    evaluated: Event = field(default_factory=dict)
    verdicts: list[Event] = field(default_factory=list)
    began: dict[int, str] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    telemetry: dict[str, Event] = field(default_factory=dict)
    throttled: set[tuple[str, int, str]] = field(default_factory=set)
    files_left: dict[str, tuple[int, int]] = field(default_factory=dict)
    remains: dict[str, Event] = field(default_factory=dict)
    scalars: dict[str, tuple[int, float, str]] = field(default_factory=dict)
    lives: dict[int, int] = field(default_factory=dict)
    conflicts: set[tuple[str, ...]] = field(default_factory=set)
    waiting: str = ""
    least: int = 0
    members: tuple[str, ...] = ()
    regroup: Happening | None = None
    evidence: Evidence = field(default_factory=Evidence)
    world: World = field(default_factory=World)
    finding: Finding | None = None
    found_at: float = 0.0
    cut: CutLink = field(default_factory=CutLink)
    explained: bool = False
    unexplained: bool = False
    came_back: set[str] = field(default_factory=set)
    restarts: int = 0
    regroups: int = 0
    barren_restarts: int = 0
    last_sign: float = 0.0
    longest_silence: float = 0.0
    story: Story = field(default_factory=Story)
    script: bool = False
    repeats: bool = False
    unread: int = 0
    reached: int = 0
    span: Span = field(default_factory=Span)
    _findings: Counter[tuple[object, ...]] = field(default_factory=Counter)
    _named: Named = field(default_factory=Named)

    def apply(self, event: Event, now: float | None = None) -> None:
        """Apply one event, which arrives at `now`. An older control side may meet kinds that it does not know."""
        if not self.world.has(event):
            return
        self.span.take(event)
        self.evidence.take(event, float(event.get("t", 0.0)) if now is None else now)
        reaction = getattr(self, f"_on_{event.get('kind')}", None)
        if reaction is not None:
            reaction(event)
        elif sentence := sentences.of(event):
            self._tell(event, *sentence)

    @property
    def step(self) -> int:
        """The step the run has reached: the slowest rank's."""
        return min((view.step for view in self.ranks.values()), default=self.reached)

    @property
    def step_words(self) -> str:
        """The step in words."""
        return f"step {self.step}" + (" (all starts, with repeats)" if self.repeats else "")

    @property
    def steps(self) -> int:
        """How many steps are planned; 0 before rank 0 has reported it."""
        return int(self.plan.get("steps", 0))

    @property
    def seconds_left(self) -> float | None:
        """The time left at the pace of the last 20 step reports; None before there are two."""
        if len(self.pace) < 2 or not self.steps:
            return None
        (t_first, first), (t_last, last) = self.pace[0], self.pace[-1]
        return (self.steps - last) * (t_last - t_first) / (last - first) if last > first else None

    def rank_of(self, node: str) -> RankView | None:
        """The first rank on a node that has reported anything."""
        return next((view for _, view in sorted(self.ranks.items()) if view.node == node), None)

    def blame(self) -> Blame | None:
        """Who is to blame for the ends of the present attempt, from the reports of the nodes' agents."""
        return blame(self.began, list(self.ends.values()))

    def name(self, node: str) -> str:
        """A node with its rank, as messages name it: `worker-2 (rank 2)`."""
        view = self.rank_of(node)
        return f"{node} (rank {view.rank})" if view else node

    def _tell(self, event: Event, text: str, grave: bool = False) -> None:
        self.story.tell(Happening(float(event.get("t", 0.0)), text, grave))

    def _sign(self, event: Event) -> None:
        t = float(event.get("t", 0.0))
        if self.last_sign and any(view.training for view in self.ranks.values()):
            self.longest_silence = max(self.longest_silence, t - self.last_sign)
        self.last_sign = max(self.last_sign, t)

    def _on_node_up(self, event: Event) -> None:
        self.up.setdefault(event["node"], float(event["t"]))
        self._sign(event)

    def _on_node(self, event: Event) -> None:
        now = NodeState(
            event["node"], event["state"], event.get("code"), event.get("restarts", 0), event.get("trouble", "")
        )
        # What a node did before this follower came, another one has told.
        before = self.nodes.get(now.node, now if self.story.recalled else NodeState(now.node, "waiting"))
        self.nodes[now.node] = now
        ended_before = self.exited_at.pop(now.node, None)
        is_loss = not now.trouble and (
            now.code in _KILLED or (self.least and now.code)
        )  # of one that is gone, the inquest
        if is_loss and now.state == "exited" != before.state and not self.verdicts:
            # Now: others that miss it may end before anybody judges, and where they go on it may come back much later.
            self._tell(event, f"{self.name(now.node)} {ended_how(now.code or 0)}{self._at_step()}", grave=True)
            self.explained = True
        if well := self._named.well(now, self.name(now.node), float(event["t"])):
            self._tell(event, well)
        if now.restarts > before.restarts and not self.verdicts:  # after a verdict a restart does not matter
            # Code 1, as a node ends that lost the others: we blame no rank before we know more.
            if now.code in (None, DONE, FAILED) or (is_loss and before.state == "exited"):
                self._tell(event, f"{now.node} restarts{self._at_step()}")
                self.came_back.add(now.node)
            else:
                how = ended_how(now.code)
                self._tell(event, f"{self.name(now.node)} {how}{self._at_step()}: restarting it", grave=True)
                self.explained = True
            self._sign(event)
        if now.state in ("exited", "lost"):
            same = ended_before if now.state == before.state and now.restarts == before.restarts else None
            self.exited_at[now.node] = float(event["t"]) if same is None else same

    def _on_started(self, event: Event) -> None:
        rank = int(event["rank"])
        self.world.forget_others(self.ranks, self.began, self.ends, self.lives, *self.evidence.by_rank)
        # The pid does not show a restart: a restarted container counts its processes from 1 again.
        restarted = rank in self.ranks
        # A script's rank knows the steps of its own host, which may have been away meanwhile.
        begins = max(int(event.get("step") or self.plan.get("start_step", 0)), self.reached)
        step = self.ranks[rank].step if restarted else begins
        self.ranks[rank] = RankView(rank, event["node"], int(event.get("pid", 0)), step)
        self.backend = event.get("backend", self.backend)
        if rank == 0 and restarted and not self.script and not self.regroup:
            self.restarts += 1
            self.barren_restarts += 1
            self.pace.clear()
            self._tell(event, f"all ranks restart (restart {self.restarts}){self._restart_reason()}")
        self._sign(event)

    def _on_members(self, event: Event) -> None:
        """Other nodes train from now on (`--min-nodes`): what the ranks did before says nothing of what comes."""
        if text := regroup.words(event, self.script):  # empty: a rank was lost, and its node starts it again
            self.reached = self.step if self.script else 0  # the trainer says at which step it goes on
            self.members, self.began, self.ends = tuple(event["members"]), dict(self.evidence.began), {}
            self.ranks = {rank: view for rank, view in self.ranks.items() if self.began.get(rank) == view.node}
            self.explained, self.finding = True, None
            self.regroup = Happening(float(event.get("t", 0.0)), text, grave=True)
            self.pace.clear()
            if self.script:
                self.regroups += 1
                self._tell_regroup(0)

    def _on_apart(self, event: Event) -> None:
        """A node that counts as lost lives, and some of the others do not reach it."""
        if self.regroup and (text := regroup.apart(event, self.regroup.text)):
            self.regroup = replace(self.regroup, text=text)
        else:
            self._tell(event, f"{event['left_out']} is not lost: {regroup.cut_off(event)}", grave=True)

    def _tell_regroup(self, step: int) -> bool:
        news, self.regroup = self.regroup, None
        if news:
            self.story.tell(replace(news, text=news.text.format(step=step)))
        return bool(news)

    def _on_plan(self, event: Event) -> None:
        self._tell_regroup(int(event.get("start_step", 0)))
        if not self.plan:
            self._tell(event, f"training {event.get('recipe', '')}: {event.get('samples', 0):,} samples")
        self.plan = event
        for view in self.ranks.values():  # of a node that is new, too
            view.step = max(view.step, int(event.get("start_step", 0)))
        self._sign(event)

    def _on_resumed(self, event: Event) -> None:
        if not self._tell_regroup(int(event["step"])):
            self._tell(event, f"resumes from step {event['step']}")
        for change in event.get("changes", ()):
            self._tell(event, str(change))

    def _on_step(self, event: Event) -> None:
        view = self.ranks.setdefault(int(event["rank"]), RankView(int(event["rank"]), event["node"]))
        view.training, view.step = True, int(event["step"])
        self.cut.clear()
        for name in ("step_ms", "data_ms", "compute_ms", "wait_ms"):
            setattr(view, name, float(event.get(name, 0.0)))
        if view.rank == 0:
            self.pace.append((float(event["t"]), view.step))
            self.barren_restarts = 0
        self._sign(event)

    def _on_continues(self, event: Event) -> None:
        """Where a start of a script begins. What it repeats counts once, if its optimizer tells where that is."""
        rank, step, before = int(event["rank"]), int(event["step"]), int(event["before"])
        self.ranks.setdefault(rank, RankView(rank, event["node"])).step = step
        if not event["known"] and not self.repeats:
            self.repeats = True
            text = "nothing tells at which step the script continues: steps that it repeats count again"
            self._tell(event, text)
        if rank == 0 and event["known"]:
            self.losses = [point for point in self.losses if point[0] <= step]
            self.pace.clear()
            repeated = f", so steps {step + 1} to {before} come again" if step < before else ""
            self._tell(event, f"the script continues after step {step}{repeated}")

    def _on_metrics(self, event: Event) -> None:
        if "loss" in event:
            self.losses.append((int(event["step"]), float(event["loss"])))
            if self.script and (news := self.loss_watch.take(*self.losses[-1])):
                who = f"{self.began[0]} (rank 0)" if 0 in self.began else "rank 0"
                self._tell(event, f"{who}: {news}", grave=True)
        if event.get("samples_per_s"):
            self.rates.append(float(event["samples_per_s"]))
        self._sign(event)

    def _on_checkpoint(self, event: Event) -> None:
        self.checkpoint = event
        self._sign(event)

    def _on_copied(self, event: Event) -> None:
        self.copied = str(event.get("node", ""))

    def _on_evaluated(self, event: Event) -> None:
        self.evaluated = event
        values = event.get("values", {})
        parts = [f"held-out {name} {value:.3g}" for name, value in values.items() if name != "accuracy"]
        if "accuracy" in values:
            parts.insert(0, f"held-out accuracy {percent(values['accuracy'])}")
        self._tell(event, f"step {event.get('step')}: {', '.join(parts)}")
        self._sign(event)

    def _on_stopping(self, event: Event) -> None:
        if int(event.get("rank", 0)) == 0:
            self._tell(event, f"stopping at step {event.get('step')}: {event.get('message', '')}")
        self._sign(event)

    def _on_waits(self, event: Event) -> None:
        """The nodes of a run wait on their hosts (`fab deploy --wait`)."""
        if float(event.get("t", 0.0)) >= self.span.since:
            self.waiting = event["why"]
            self._tell(event, f"waits: {self.waiting}")
            self._sign(event)

    def _on_began(self, event: Event) -> None:
        rank, self.waiting = event["rank"], ""
        if self.script:  # the trainer's own ranks report themselves that all have restarted
            self._count_life(event)
            self.ends.pop(rank, None)
        self.began[rank] = event["node"]
        self.left.discard(rank)

    def _on_ended(self, event: Event) -> None:
        rank, node, code = event["rank"], event["node"], event["code"]
        if self.began.get(rank) != node:  # it belongs to an earlier start, whose last lines arrived late
            return
        how = event.get("how") or ended_how(code)
        end = End(rank, node, code, event["t"], how, event.get("victim", False), event.get("error", ""))
        self.ends[rank] = end
        late = self.lives.get(rank, 0) <= self.restarts + self.regroups  # another host has told of the new start first
        if self.unexplained and late and code and not end.victim:
            self._tell(event, f"the reason of restart {self.restarts}{self._restart_reason()}", grave=True)
        # The line about the restart of all ranks, or a verdict, reports exit codes.
        elif code < 0 and not end.victim:
            self.explained = True
            self._tell(event, f"{node} (rank {rank}) {how}{self._at_step()}", grave=True)

    def _count_life(self, event: Event) -> None:
        """A rank of a script began. All ranks restart together: the first to begin again tells it of all.

        Where nodes go on without others, each change of them has been told already, by the node that has rank 0.
        """
        rank = event["rank"]
        self.lives[rank] = self.lives.get(rank, 0) + 1
        if self.lives[rank] - 1 <= self.restarts + self.regroups or (rank and self.least):
            return
        self.restarts += 1
        self.pace.clear()
        self._tell(event, f"the script starts again (restart {self.restarts}){self._restart_reason()}", grave=True)

    def _on_moves(self, event: Event) -> None:
        if self.finding and self.finding.cause in _STANDS and self.finding.rank in (None, event["rank"]):
            self._tell(event, f"rank {event['rank']} moves again")

    def inquire(self, now: float) -> None:
        """Tell what the inquest finds: of each attempt the first cause in time, and what lasts beside the training."""
        findings = inquest.findings(self.evidence, now)
        links = next((finding for finding in findings if finding.cause == Cause.CUT_OFF), None)
        self.cut.look(links, self.evidence, self.names, now)
        ending = [finding for finding in findings if not finding.lasting]
        if self.finding and self.finding.key not in {finding.key for finding in ending}:
            self.finding = None  # it is over, or more is known by now
        for finding in findings:
            if not finding.lasting:
                if self.finding is not None:
                    continue
                self.finding, self.found_at = finding, now
            if self._findings[finding.key] < _MOST_TOLD * (not finding.lasting) or not self._findings[finding.key]:
                self._findings[finding.key] += 1
                self._named.take(finding, self.evidence)
                end = self.ends.get(-1 if finding.rank is None else finding.rank)
                if not (end and end.code < 0):  # the line about its end has told it
                    self.explained |= finding.cause != Cause.ALONE  # which ends no rank
                    self._tell({"t": now}, finding.message, grave=True)

    def _on_conflicts(self, event: Event) -> None:
        paths = tuple(event["paths"])
        if paths and paths not in self.conflicts:  # nodes of one machine share a folder, and hosts are often alike
            self.conflicts.add(paths)
            more = f" and {event['count'] - _MOST_PATHS} more" if event["count"] > _MOST_PATHS else ""
            changed = f"{event['node']}: the run has changed {', '.join(paths[:_MOST_PATHS])}{more}"
            self._tell(event, f"{changed}: its own stay, and what was sent is not used", grave=True)

    def _on_kept(self, event: Event) -> None:
        self.files_left[event["node"]] = (event["files"], event["bytes"])
        self.remains[event["node"]] = event

    def _on_telemetry(self, event: Event) -> None:
        """No sign of life: a node whose ranks hang still has a temperature."""
        node = event["node"]
        if node not in self.names:
            return
        self.telemetry[node] = event
        for gpu in event.get("gpus", ()):
            for reason in gpu.get("throttled", ()):
                key = (node, gpu["index"], reason)
                new = key not in self.throttled and len(self.throttled) < _MOST_THROTTLED
                if new and reason not in _USUAL_THROTTLING:
                    self.throttled.add(key)
                    self._tell(event, f"{node}: GPU {gpu['index']} runs slower than it could: {reason}", grave=True)

    def _on_scalars(self, event: Event) -> None:
        for tag, points in event["tags"].items():
            if points and (tag in self.scalars or len(self.scalars) < _MOST_SCALARS):
                self.scalars[tag] = points[-1][0], points[-1][1], event["file"]

    def _on_left(self, event: Event) -> None:
        self.left.add(rank := event["rank"])
        self._tell(event, f"{self.ends[rank].node} (rank {rank}) left with code 0; the others still run", grave=True)

    def _restart_reason(self) -> str:
        """Why all ranks restart; empty if a lost rank or node, which was reported already, explains it."""
        culprit, explained = self.blame(), self.explained
        # A rank that ended with its node left no word; the node's own restart was reported.
        with_node = culprit is not None and culprit.node in self.came_back and culprit.rank not in self.ends
        self.ends, self.explained, self.came_back = {}, False, set()
        self.unexplained = self.script and culprit is None and not explained
        if explained or with_node or culprit is None:
            return ""
        where = f"; logs/rank-{culprit.rank}.log has its last words" if culprit.rank is not None else ""
        return f": {culprit.message}{where}"

    def _on_unread(self, event: Event) -> None:
        before, self.unread = self.unread, self.unread + event["count"]
        # Report the first one, and then each time that the count has grown tenfold.
        if len(str(self.unread)) > len(str(before)) or not before:
            many = f"{self.unread:,} lines so far" if self.unread > 1 else "a line"
            self._tell(event, f"{event['where']}: skipped lines that cannot be read: {many}")

    def _on_verdict(self, event: Event) -> None:
        self.verdicts.append(event)

    def _at_step(self) -> str:
        return f" at {self.step_words}" if self.step else ""
