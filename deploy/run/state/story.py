"""The story of a run: lines that are added as events arrive, restarts and losses too; and for a late follower. Pure.

timeline.py keeps it in timeline.jsonl.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...causes.end_causes import Cause
from ...core.errors import DONE, FAILED, SIGNALLED
from ...core.facts import NodeState, ended_how
from ...job.options import FLAG
from ..events import Event, changes_nodes, react
from ..inquest.blame import End, blame, cause_of_end
from ..inquest.causes import Finding
from . import sentences
from .evidence import Evidence
from .losses import LossWatch
from .nodes import state_of
from .ranks import Ranks, end_of

# The exit codes of a node that somebody or the kernel killed: from the process itself, and from a container engine.
_KILLED = (-signal.SIGKILL, SIGNALLED + signal.SIGKILL)
# A GPU that works hard is at its power cap most of the time.
_USUAL_THROTTLING = ("power cap",)
_MOST_THROTTLED = 1000
# Ranks that are stuck for one of these causes may move again.
_MAY_MOVE_AGAIN = (Cause.STOPPED, Cause.LOCKED_UP, Cause.MISMATCH, Cause.NOT_KNOWN, Cause.CUT_OFF, Cause.DISK_SILENT)
# After _QUIET_S without an old line, no more are expected. _MOST_S is the limit for a host whose clock is behind: its
# lines would look old for ever.
_QUIET_S, _MOST_S = 1.5, 30.0


@dataclass(frozen=True)
class Happening:
    """One line of the run's story; `grave` marks a line that a reader must not miss.

    `trouble`: the finding in it that may end a run, if there is one. `restart`: the line tells that all ranks start
    again. `moves`: it tells that a rank that was stuck moves again.
    """

    t: float
    text: str
    grave: bool = False
    trouble: Finding | None = None
    restart: bool = False
    moves: bool = False


class Story(list[Happening]):
    """The lines so far, in the order in which they became known.

    `written`: how many of them are on the disk. `late`: its follower came when the run was already running. `unread`:
    how many lines of the run's files could not be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written, self.late, self.unread = 0, False, 0
        self._known: frozenset[float] = frozenset()
        # The ends that cause the next restart of all ranks; whether a line has already told the reason; whether the
        # reason of the last restart was unknown; the nodes that restarted since the ranks began.
        self._ends: dict[int, End] = {}
        self._explained, self._unexplained, self._came_back = False, False, set[str]()
        # Nodes that started again after code 1, until one of their ranks begins: such a node may just end again the
        # same way.
        self._back = dict[str, tuple[Event, str]]()
        # The last change of the nodes, until the ranks report from which step they continue; words for lost nodes that
        # are alive.
        self._regroup: Event | None = None
        self._apart: dict[str, str] = {}
        # The nodes whose trouble a line has told: the trouble, and since when.
        self._troubles: dict[str, tuple[str, float]] = {}
        self._losses = LossWatch()
        self._throttled, self._conflicts = set[tuple[str, int, str]](), set[tuple[str, ...]]()

    def recall(self, lines: Sequence[Happening]) -> None:
        """Begin with the lines of another follower of the run, so that lines for the same events are not repeated."""
        self.extend(lines)
        self.written, self.late, self._known = len(self), True, frozenset(line.t for line in self)

    def tell(self, line: Happening) -> None:
        """Add a line."""
        if line.t not in self._known:
            self.append(line)

    def apply(self, event: Event, t: float, run: Evidence, finding: Finding | None = None) -> None:
        """Tell what changes with an event that happened at `t`. `run`: what was known before the event.

        `finding`: the cause that the inquest has found for the current attempt.
        """
        kind = event.get("kind", "")
        if kind == "moves":
            if finding and finding.cause in _MAY_MOVE_AGAIN and finding.rank in (None, event["rank"]):
                self._tell(event, f"rank {event['rank']} makes progress again", moves=True)
        elif kind == "ended":
            self._on_ended(event, t, run)
        else:
            react(self, event, run)
            if sentence := sentences.sentence_of(event):
                self._tell(event, *sentence)

    def tell_finding(self, finding: Finding, run: Evidence, now: float) -> None:
        """Tell what the inquest has found."""
        if finding.node in run.nodes.troubles:  # the finding's message covers all nodes that are in trouble
            self._troubles |= run.nodes.troubles
        end = self._ends.get(-1 if finding.rank is None else finding.rank)
        last = next((line.text for line in reversed(self) if line.grave), "")
        if self.late and last == finding.message:  # another follower has told it
            self._explained |= finding.cause != Cause.ALONE
        elif not (end and end.code < 0):  # otherwise the line about the rank's end has told it
            self._explained |= finding.cause != Cause.ALONE  # training alone ends no rank
            self._tell({"t": now}, finding.message, True, trouble=None if finding.lasting else finding)

    def _tell(self, event: Event, text: str, grave: bool = False, **more: Any) -> None:
        self.tell(Happening(float(event.get("t", 0.0)), text, grave, **more))

    def _on_node(self, event: Event, run: Evidence) -> None:
        now, who = state_of(event), run.ranks.node_name(event["node"])
        # Another follower has told what a node did before this follower came.
        before = run.nodes.states.get(now.node, now if self._known else NodeState(now.node, "waiting"))
        # The inquest tells about a node that is gone.
        is_loss = not now.trouble and (now.code in _KILLED or (run.ranks.least and now.code))
        if is_loss and now.state == "exited" != before.state and not run.verdicts:
            # Tell it now: nodes that lost this one may end before the run is judged, and if they continue without it,
            # it may come back much later.
            trouble = _end_of_node(now, run.ranks)
            self._tell(event, trouble.message, True, trouble=trouble)
            self._explained = True
        if not now.trouble and now.node in self._troubles:
            over, since = self._troubles.pop(now.node)
            if well := sentences.recovered_sentence(now, who, over, float(event["t"]) - since):
                self._tell(event, well)
        if now.restarts > before.restarts and not run.verdicts:  # after a verdict a restart does not matter
            # A node that lost the others ends with code 1, too: no rank is blamed before more is known.
            was_lost, again = is_loss and before.state == "exited", f"{now.node} restarts{run.ranks.at_step}"
            if now.code == FAILED and not was_lost:
                self._back[now.node] = (event, again)
            elif now.code in (None, DONE) or was_lost:
                self._tell_back(event, again)
            else:
                trouble = _end_of_node(now, run.ranks)
                self._tell(event, f"{trouble.message}: restarting it", True, trouble=trouble)
                self._explained = True

    def _tell_back(self, event: Event, text: str) -> None:
        self._tell(event, text)
        self._came_back.add(event["node"])

    def _tell_held_back(self, node: str) -> None:
        if back := self._back.pop(node, None):
            self._tell_back(*back)

    def _on_started(self, event: Event, run: Evidence) -> None:
        self._tell_held_back(event["node"])
        if size := run.ranks.size:
            self._ends = {rank: end for rank, end in self._ends.items() if rank < size}
        if run.ranks.starts_again(event):
            self._tell_restart(event, f"all ranks restart (restart {run.ranks.restarts + 1})", run.ranks)

    def _on_began(self, event: Event, run: Evidence) -> None:
        self._tell_held_back(event["node"])
        if run.ranks.starts_again(event):
            self._tell_restart(event, f"the script starts again (restart {run.ranks.restarts + 1})", run.ranks, True)
        if run.ranks.script:
            self._ends.pop(event["rank"], None)

    def _on_ended(self, event: Event, t: float, run: Evidence) -> None:
        ranks, rank, node = run.ranks, event["rank"], event["node"]
        if ranks.began.get(rank) != node:  # the event belongs to an earlier start, whose last lines arrived late
            return
        end = self._ends[rank] = end_of(event, t)
        late = ranks.lives[rank] <= ranks.restarts + ranks.regroups  # another host reported the new start first
        if self._unexplained and late and end.code and not end.victim:
            self._tell_restart(event, f"the reason of restart {ranks.restarts}", ranks, True, again=False)
        # Here only ends by a signal are told; the line about the restart of all ranks, or a verdict, tells exit codes.
        elif end.code < 0 and not end.victim:
            self._explained = True
            trouble = Finding(cause_of_end(end), f"{node} (rank {rank}) {end.how}{ranks.at_step}", node, rank)
            self._tell(event, trouble.message, trouble.cause != Cause.ENDED, trouble=trouble)

    def _tell_restart(self, event: Event, text: str, ranks: Ranks, grave: bool = False, again: bool = True) -> None:
        """Tell that all ranks restart (`again`), and why, if no line about a lost rank or node has told the reason."""
        culprit, explained = blame(ranks.began, list(self._ends.values())), self._explained
        # A rank that ended together with its node reported nothing; the line about the node's restart was enough.
        with_node = culprit is not None and culprit.node in self._came_back and culprit.rank not in self._ends
        self._ends, self._explained, self._came_back = {}, False, set()
        self._unexplained = ranks.script and culprit is None and not explained
        if explained or with_node or culprit is None:
            self._tell(event, text, grave, restart=again)
            return
        where = f"; logs/rank-{culprit.rank}.log has its last words" if culprit.rank is not None else ""
        self._tell(event, f"{text}: {culprit.message}{where}", grave, restart=again, trouble=culprit)

    def _on_left(self, event: Event, run: Evidence) -> None:
        rank, node = event["rank"], run.ranks.ends[event["rank"]].node
        text = f"{node} (rank {rank}) left with code 0; the others are still running"
        self._tell(event, text, True, trouble=Finding(Cause.LEFT_EARLY, text, node, rank))

    def _on_members(self, event: Event, run: Evidence) -> None:
        """Remember, or tell, that other nodes train from now on (`--min-nodes`)."""
        if changes_nodes(event):
            self._ends, self._explained, self._regroup, self._apart = {}, True, event, {}
            if run.ranks.script:
                self._tell_regroup(0, script=True)

    def _on_apart(self, event: Event, run: Evidence) -> None:
        """Tell that a node that counts as lost is alive, but some of the other nodes do not reach it."""
        lost, cut_off, news = event["left_out"], sentences.apart_words(event), self._regroup
        if news and sentences.lost_in(news) == [lost]:
            self._apart[lost] = cut_off
        else:
            self._tell(event, f"{lost} is not lost: {cut_off}", grave=True)

    def _tell_regroup(self, step: int, script: bool = False) -> bool:
        news, self._regroup = self._regroup, None
        if news:
            self._tell(news, sentences.regroup_words(news, script, step, self._apart), grave=True)
        return bool(news)

    def _on_plan(self, event: Event, run: Evidence) -> None:
        self._tell_regroup(int(event.get("start_step", 0)))
        if not run.ranks.plan:
            self._tell(event, f"training {event.get('recipe', '')}: {event.get('samples', 0):,} samples")

    def _on_resumed(self, event: Event, run: Evidence) -> None:
        if not self._tell_regroup(int(event["step"])):
            self._tell(event, f"resumes from step {event['step']}")
        for change in event.get("changes", ()):
            self._tell(event, str(change))

    def _on_continues(self, event: Event, run: Evidence) -> None:
        step, before, is_first = int(event["step"]), int(event["before"]), int(event["rank"]) == 0
        if not event["known"] and not run.ranks.repeats:
            text = "the script does not report from which step it resumes"
            if event.get("empty"):
                text = "the script's optimizer is empty: it starts over, or continues with only its weights"
            self._tell(event, f"{text}, so repeated steps are counted twice", bool(event.get("empty")))
        if is_first and event.get("anew"):
            why = "it loaded no checkpoint, and its optimizer is empty"
            text = f"the script starts over from the beginning: {why}; steps 1 to {before} are repeated"
            self._tell(event, f"{text} ({FLAG.restart_with} adds words to the script when it starts again)", True)
        elif is_first and event.get("another"):
            self._tell(event, f"after step {before}, another program of the script trains: its steps start at 1")
        elif is_first and event["known"]:
            repeated = f", so steps {step + 1} to {before} are repeated" if step < before else ""
            self._tell(event, f"the script continues after step {step}{repeated}")

    def _on_metrics(self, event: Event, run: Evidence) -> None:
        # Muster's own trainer itself ends a run with such a loss. A script may continue for hours.
        if "loss" in event and run.ranks.script:
            who = f"{run.ranks.began[0]} (rank 0)" if 0 in run.ranks.began else "rank 0"
            if news := self._losses.take(int(event["step"]), float(event["loss"])):
                self._tell(event, f"{who}: {news}", grave=True)

    def _on_stopping(self, event: Event, run: Evidence) -> None:
        if int(event.get("rank", 0)) == 0:
            self._tell(event, f"stopping at step {event.get('step')}: {event.get('message', '')}")

    def _on_waits(self, event: Event, run: Evidence) -> None:
        if float(event.get("t", 0.0)) >= run.ranks.span.since:
            self._tell(event, f"waits: {event['why']}")

    def _on_conflicts(self, event: Event, run: Evidence) -> None:
        paths = tuple(event["paths"])
        if paths and paths not in self._conflicts:  # nodes on one machine share a folder, and hosts often have the same
            self._conflicts.add(paths)
            more = f" and {event['count'] - len(paths)} more" if event["count"] > len(paths) else ""
            changed = f"{event['node']}: the run had changed {', '.join(paths)}{more}"
            self._tell(
                event, f"{changed}: it keeps its own versions, and the ones that you sent are not used", grave=True
            )

    def _on_telemetry(self, event: Event, run: Evidence) -> None:
        """Tell, once for each reason, that a GPU is throttled."""
        node = event["node"]
        for gpu in event.get("gpus", ()) if node in run.nodes.names else ():
            for reason in gpu.get("throttled", ()):
                key = (node, gpu["index"], reason)
                new = key not in self._throttled and len(self._throttled) < _MOST_THROTTLED
                if new and reason not in _USUAL_THROTTLING:
                    self._throttled.add(key)
                    self._tell(event, f"{node}: GPU {gpu['index']} runs slower than it could: {reason}", grave=True)

    def _on_unread(self, event: Event, run: Evidence) -> None:
        before, self.unread = self.unread, self.unread + event["count"]
        # Report the first one, and then each time that the count has grown tenfold.
        if len(str(self.unread)) > len(str(before)) or not before:
            many = f"{self.unread:,} lines so far" if self.unread > 1 else "a line"
            self._tell(event, f"{event['where']}: {event['why'] or f'skipped lines that Muster cannot read: {many}'}")


def _end_of_node(node: NodeState, ranks: Ranks) -> Finding:
    text = f"{ranks.node_name(node.node)} {ended_how(node.code or 0)}{ranks.at_step}"
    cause = Cause.KILLED if node.code in _KILLED else Cause.NOT_KNOWN
    return Finding(cause, text, node.node, ranks.only_rank(node.node))


class CatchingUp:
    """Puts a line into the story of a late follower, once all output from before `now` has been shown.

    What comes after that line is new. The hosts send their consoles from the beginning, which takes a moment.
    """

    def __init__(self, story: Story, now: float) -> None:
        self._story = story
        self._began = self._quiet_since = now
        self._over, self._new = not story.late, list[Event]()

    def parts(self, events: list[Event], now: float) -> Iterator[list[Event]]:
        """The events of one look in the parts in which to show them; new output waits until old output is shown."""
        if not self._over:
            old = [event for event in events if not self._is_new_output(event)]
            self._new += [event for event in events if self._is_new_output(event)]
            if any(event.get("kind") == "output" for event in old):
                self._quiet_since = now
            yield old
            if now - self._quiet_since < _QUIET_S and now - self._began < _MOST_S:
                return
            self._over, events = True, self._new
            self._story.tell(Happening(now, "muster attach follows the run from here on"))
            yield []  # so that the line is shown before the new output
        yield events

    def rest(self) -> list[Event]:
        """The new output that is still waiting when the run ends."""
        return [] if self._over else self._new

    def _is_new_output(self, event: Event) -> bool:
        return event.get("kind") == "output" and float(event["t"]) >= self._began
