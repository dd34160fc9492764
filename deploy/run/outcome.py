"""Decide when a run is over (even if ranks still live), how it ended, and with which exit code. Pure: State to Result.

A rank's verdict decides if there is one. If there is none (a rank killed by SIGKILL leaves none), the control side
decides within 30 s and names the node and rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..causes.end_causes import Cause
from ..causes.table import READ
from ..core.errors import DONE, FAILED, SIGNALLED, STOPPED, USAGE
from ..core.facts import NodeState, ended_how
from ..core.text import in_seconds, listed
from .events import Event
from .inquest.blame import cause_of_error
from .inquest.causes import Finding
from .lost_host import ends_run
from .own_run import by_words
from .progress import State

START_SPREAD_S = 25.0  # the longest time from the first node that is up to the last
FIRST_NODE_S = 60.0  # the longest time from the start to the first node: Python starts slowly from a cold disk
# A node that ended is "exited" for an instant before its backend restarts it.
EXIT_SETTLES_S = 2.0
# The ranks themselves watch their collectives (the trainer's timeouts); these limits catch runs that hang all the same.
SILENCE_BEFORE_STEPS_S = 600.0
SILENCE_AT_LEAST_S = 120.0
SILENCE_FACTOR = 20.0
# Ranks seldom end at the same moment: one writes the last checkpoint while the others are done.
LEFT_AFTER_S = 10.0
# The trainer itself gives up after five restarts without a step; this limit is for a trainer that cannot even do that.
MOST_BARREN_RESTARTS = 8

# How long the ranks of a script may wait for a rank that has ended.
ENDED_AFTER_S = 45.0

CODES = {"done": DONE, "failed": FAILED, "refused": USAGE, "stopped": STOPPED}
# The message for a run that somebody asked to kill.
AT_ONCE = "killed immediately, as requested"
# An error outranks the "stopped" and "done" of ranks that only followed it.
_WEIGHT = {"refused": 0, "failed": 1, "stopped": 2, "done": 3}


@dataclass(frozen=True)
class Result:
    """How a run ended: the verdict's fields (contract.md); `from_ranks`: a rank gave the verdict.

    `cause`: why it failed, a cause of causes/end_causes.py; `by_inquest`: cause and message already come from the
    inquest. `hosts_left`: if a host is lost, the hosts that the next start should use.
    """

    verdict: str
    message: str = ""
    hint: str = ""
    node: str = ""
    rank: int | None = None
    step: int = 0
    from_ranks: bool = False
    cause: str = ""
    by_inquest: bool = False
    hosts_left: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """The exit code of `muster up`."""
        return CODES.get(self.verdict, FAILED)


def judge(state: State, started_at: float, now: float) -> Result | None:
    """How the run ended, or None while it continues."""
    if state.verdicts:
        return from_verdicts(state.verdicts)
    return (
        _node_gone(state, now)
        or _node_missing(state, started_at, now)
        or _no_headway(state)
        or _beyond_repair(state, now)
        or _too_silent(state, now)
    )


def all_ended(state: State) -> bool:
    """Whether every planned node has ended, apart from silent ones that the others have continued without."""
    nodes = state.nodes
    away = {
        name
        for name, node in nodes.states.items()
        if node.trouble in ("unseen", "lifeless") and nodes.members and name not in nodes.members
    }
    return all(name in nodes.exited_at or name in away for name in state.names)


def from_verdicts(verdicts: Sequence[Event]) -> Result:
    """The end of a run from its worst verdict.

    Among equally bad verdicts, that of a node that trained alone comes first, then one with a message, then the
    earliest.
    """

    def order(each: Event) -> tuple[float, bool, bool, float]:
        return _weight(each), not _is_alone(each), not each.get("message"), each.get("since") or each.get("t", 0)

    first = min(verdicts, key=order)
    cause = _cause_in(first) or (cause_of_error(first.get("message", "")) if first["verdict"] == "failed" else "")
    same = {str(verdict.get("node")) for verdict in verdicts if verdict.get("verdict") == first["verdict"] == "failed"}
    return Result(
        verdict=first["verdict"],
        message=_folded(first.get("message", ""), sorted(same - {str(first.get("node"))})),
        hint=first.get("hint", ""),
        node=first.get("node", ""),
        rank=first.get("rank"),
        step=int(first.get("step") or 0),
        from_ranks=True,
        cause=cause,
    )


def _cause_in(verdict: Event) -> Cause | None:
    return Cause.of_slug(verdict.get("cause"))


def _is_alone(verdict: Event) -> bool:
    """Whether the node trained without the others, so that a failure to reach it later explains nothing."""
    return _cause_in(verdict) == Cause.ALONE


def _weight(verdict: Event) -> int:
    """How a verdict ranks; the lowest decides.

    A kill that a user asked for counts as an error, because nodes that fail after it have only lost others.
    """
    word = "failed" if verdict.get("at_once") is True else verdict.get("verdict", "")
    return _WEIGHT.get(word, 1)


def final(state: State) -> Result:
    """The result once all nodes have ended and the ranks gave a verdict.

    A node whose rank ended with 0 reports "done" for itself. The run is done only if no other rank or node failed.
    """
    result = from_verdicts(state.verdicts)
    asked = {verdict.get("node") for verdict in state.verdicts if verdict.get("verdict") == "stopped"}
    by_signal = result.verdict == "stopped" and result.cause == Cause.ENDED
    if by_signal and result.node and state.script and len(asked) == 1 < len(state.names):
        where = f"(by a signal on {state.ranks.node_name(result.node)}; no other node reports a signal)"
        return replace(result, message=f"{result.message} {where}")
    if result.verdict != "done":
        return result
    # In a run of several roles each node reports how its own role ended: a rank that lost the others may not be at
    # fault.
    if not state.ranks.roles and (blame := state.blame()):
        return _blamed(blame, state)
    members = state.nodes.members or state.nodes.states.keys()
    for node in state.nodes.states.values():
        if node.node in members and node.state == "exited" and node.code not in (None, DONE):
            who = state.ranks.node_name(node.node)
            how = f"{who} {ended_how(node.code)}"
            return _failed(state, node.node, how, f"see logs/{node.node}.log", _cause_of_node(node))
    # A hint in a "done" verdict means that the node's ranks were not seen to train. It holds for the run if all nodes
    # report it and no rank wrote a file or made a step. A message means that it is not known how a script inside the
    # node's command ended.
    idle = all(verdict.get("hint") for verdict in state.verdicts) and not may_have_written(state) and not state.step
    return result if idle or result.message else replace(result, hint="")


def concluded(result: Result, finding: Finding | None) -> Result:
    """The result of a failed run with its first cause in time, and with the meaning of an exception's message."""
    return _with_meaning(_with_cause(result, finding))


def _with_meaning(result: Result) -> Result:
    """Add the meaning of an exception that the table of causes knows, as `muster explain` would print it."""
    if result.cause != Cause.EXCEPTION or not result.from_ranks:
        return result
    words = by_words(Finding(Cause.EXCEPTION, result.message, result.node, result.rank))
    if not words.says_more:
        return result
    return replace(result, hint="; ".join(filter(None, (f"{words.what}: {READ} {words.cause}", result.hint))))


def _with_cause(result: Result, finding: Finding | None) -> Result:
    if result.verdict != "failed":
        return replace(result, cause="")
    # Nodes that trained in separate worlds end at different times, so none of them has lost another.
    is_alone = result.from_ranks and result.cause == Cause.ALONE
    if finding is None or finding.lasting or is_alone or result.by_inquest:
        return result
    if finding.cause == Cause.ENDED and not result.from_ranks:  # Muster's own stop ended it, after the judgement
        return result
    same = finding.rank is not None and finding.rank == result.rank
    if result.from_ranks and (same or finding.cause == Cause.NOT_KNOWN):
        # Both describe one end. What the inquest saw replaces a cause that the rank's words leave open; LEFT_EARLY does
        # not, because it only means that no words were seen.
        is_open = result.cause in ("", Cause.EXCEPTION) and finding.cause != Cause.LEFT_EARLY
        return replace(result, cause=finding.cause) if is_open else result
    message = f"{finding.message}\nthen: {result.message}" if result.from_ranks else finding.message
    return replace(result, message=message, node=finding.node, rank=finding.rank, cause=finding.cause)


def conclude(state: State, now: float) -> Result:
    """How and why a run ended whose ranks gave a verdict: for a run that no command follows any more."""
    state.inquire(now)
    return concluded(final(state), state.case.finding)


def may_have_written(state: State) -> bool:
    """Whether a script left files, or may have left files on a node that has not reported it.

    A node reports what is left there when it ends, unless it is killed.
    """
    remains = state.nodes.remains
    written = any(event["files"] for event in remains.values())
    return written or bool(state.script and state.ranks.began and not remains.keys() >= {*state.names})


def may_continue(state: State) -> bool:
    """Whether the run has a checkpoint, or its script may have left files to continue with."""
    return bool(state.training.checkpoint) or may_have_written(state)


def stopped(state: State) -> Result:
    """The end of a run that was asked to stop and whose ranks left no verdict."""
    where = f" at {state.ranks.step_words}" if state.step else "" if state.script else " before the first step"
    return Result("stopped", f"stopped{where}{_checkpoint_text(state)}", step=state.step)


def killed(state: State, waited_s: float | None = None) -> Result:
    """The end of a run that was killed: immediately, as the user asked, or after it had `waited_s` to stop."""
    if waited_s is None:
        return Result("stopped", f"{AT_ONCE}{_checkpoint_text(state)}", step=state.step)
    why = f"killed: it was still running {in_seconds(waited_s)} after the request to stop"
    return Result("failed", f"{why}{_checkpoint_text(state)}", step=state.step, cause=Cause.ENDED)


def _checkpoint_text(state: State) -> str:
    if state.script:  # only the script itself knows what it saved
        return ""
    saved = state.training.checkpoint.get("step")
    return f"; the last checkpoint is from step {saved}" if saved is not None else "; there is no checkpoint"


def _folded(message: str, others: list[str]) -> str:
    """The message of the first node to fail, with the names of the other failed nodes after its first line."""
    if not others:
        return message
    head, newline, rest = message.partition("\n")
    return f"{head} ({listed(others)} failed as well){newline}{rest}"


def may_restart(node: NodeState, verdicts: list[Event], stopping: bool) -> bool:
    """Whether a backend should restart a node: it died, no stop was asked for, and no verdict has ended the run."""
    return not stopping and not verdicts and node.code is not None and (node.code < 0 or node.code == FAILED)


def _failed(state: State, node: str, message: str, hint: str, cause: Cause) -> Result:
    view = state.ranks.view_of(node)
    return Result("failed", message, hint, node, view.rank if view else None, state.step, cause=cause)


def _blamed(blame: Finding, state: State) -> Result:
    where = f"logs/{blame.node}.log has its last words" if blame.node else "logs/ has what each node said last"
    return Result("failed", blame.message, where, blame.node, blame.rank, state.step, cause=blame.cause)


def _cause_of_node(node: NodeState) -> Cause:
    """Why a node ended, if nothing is known about its ranks."""
    return Cause.KILLED if _killed(node) else Cause.NOT_KNOWN


def _node_gone(state: State, now: float) -> Result | None:
    ranks, exited_at, states = state.ranks, state.nodes.exited_at, state.nodes.states
    ended = sorted((t, name) for name, t in exited_at.items() if now - t >= EXIT_SETTLES_S)
    fresh = [states[name] for name, t in exited_at.items() if now - t < EXIT_SETTLES_S]
    if any(node.state == "lost" or _killed(node) for node in fresh):
        return None  # this node may be the cause: wait for it, or only the nodes that lost it would be judged
    if not ended or not ends_run(len(state.names) - len(ended), ranks.least):
        return None
    # A lost node, or one killed by a signal, comes before nodes that ended because they missed it.
    name = min(ended, key=lambda entry: (states[entry[1]].state != "lost", not _killed(states[entry[1]]), entry))[1]
    node, who = states[name], ranks.node_name(name)
    code = node.code if node.code is not None else FAILED
    at = state.ranks.at_step
    if code == USAGE:
        return Result("refused", f"{name} refused to start", f"logs/{name}.log says why", name)
    if node.state == "lost":
        why = f"{who} cannot be reached{at}, and the run cannot continue without it"
        return _failed(state, name, why, f"is its host up? logs/{name}.log has its last words", Cause.NODE_LOST)
    if not _killed(node) and (blame := state.blame()):
        return _blamed(blame, state)
    if code == STOPPED:
        return Result("stopped", f"{who} was asked to stop{at}", "", name, None, state.step)
    how = "ended without a verdict" if code == DONE else ended_how(code)
    at = at if ranks.began or ranks.views else _before_any_rank(state)
    return _failed(state, name, f"{who} {how}{at}", f"logs/{name}.log has its last words", _cause_of_node(node))


def _before_any_rank(state: State) -> str:
    """Words for nodes that ended before any rank began. A node that is still running may be the one they waited for."""
    rest = [state.ranks.node_name(name) for name in state.names if name not in state.nodes.exited_at]
    still = f"; {', '.join(rest)} still {'runs' if len(rest) == 1 else 'run'}" if rest else ""
    return f" before any rank started{still}"


def _killed(node: NodeState) -> bool:
    """Whether a signal killed the node itself. Engines report a signal as 128 + its number."""
    return node.code is not None and (node.code < 0 or node.code > SIGNALLED)


def left_early(state: State, now: float, followed_since: float = 0.0) -> list[int]:
    """The ranks that ended with 0 a while ago while others still run, and that were not reported yet.

    A follower that comes late (`followed_since`) gets the ends of the ranks one by one; until it has had time for that,
    no rank counts as having left early.
    """
    ranks = state.ranks
    if state.verdicts or state.nodes.exited_at or len(ranks.ends) == len(ranks.began) or ranks.roles:
        return []
    return [
        end.rank
        for end in ranks.ends.values()
        if end.code == DONE and now - max(end.t, followed_since) >= LEFT_AFTER_S and end.rank not in ranks.left
    ]


def _node_missing(state: State, started_at: float, now: float) -> Result | None:
    up = state.nodes.up
    missing = [name for name in state.names if name not in up]
    if not missing or (state.ranks.least and state.ranks.began):
        return None  # the others train without it; it may have joined only a moment ago
    if up:
        waited, limit = now - max(started_at, min(up.values())), START_SPREAD_S
    else:
        waited, limit = now - started_at, FIRST_NODE_S
    if waited < limit:
        return None
    others = f" ({', '.join(up)} waited {in_seconds(waited)})" if up else f" within {in_seconds(waited)}"
    text = f"{', '.join(missing)} did not start{others}"
    return _failed(state, missing[0], text, f"see logs/{missing[0]}.log", Cause.NODE_LOST)


def _no_headway(state: State) -> Result | None:
    if state.ranks.barren_restarts < MOST_BARREN_RESTARTS:
        return None
    blame, last = state.blame(), f"; last: {state.story[-1].text}" if state.story else ""
    message = f"{state.ranks.barren_restarts} restarts in a row without a training step between them{last}"
    where = "logs/ has what each node and rank said"
    result = Result("failed", message, where, step=state.step, cause=Cause.NOT_KNOWN)
    return replace(result, node=blame.node, rank=blame.rank, cause=blame.cause) if blame else result


def _beyond_repair(state: State, now: float) -> Result | None:
    """The result if a link or a disk did not come back in time, or if ranks only wait for a rank that has ended.

    gloo notices the end of a rank immediately, NCCL after ten minutes. Muster's own trainer starts again after a link
    was cut.
    """
    if (cut := state.case.cut.finding) and now - state.case.cut.t >= state.wait_lost_s:
        return _end_by(cut, "repair the link", state)
    finding, living = state.case.finding, state.living
    if finding and finding.cause == Cause.DISK_SILENT and now - state.case.found_at >= state.wait_lost_s:
        hint = f"on {finding.node}: findmnt; the container ends once that disk, or its server, answers"
        return _end_by(finding, hint, state)
    if finding is None or not state.script or not living.keys() <= state.ranks.stuck.keys():
        return None
    if finding.rank not in state.ranks.ends or now - state.case.found_at < ENDED_AFTER_S:
        return None
    return _end_by(finding, f"logs/rank-{finding.rank}.log shows its last words", state)


def _end_by(finding: Finding, hint: str, state: State) -> Result:
    """The failed result that a finding of the inquest stands for."""
    about = finding.message, hint, finding.node, finding.rank, state.step
    return Result("failed", *about, cause=finding.cause, by_inquest=True)


def _too_silent(state: State, now: float) -> Result | None:
    """The result if a run of Muster's own trainer hangs. A script may evaluate, save or download for hours."""
    ranks = state.ranks
    if state.script or not ranks.last_sign:
        return None
    stepping = any(view.time for view in ranks.views.values())
    limit = max(SILENCE_AT_LEAST_S, SILENCE_FACTOR * ranks.longest_silence) if stepping else SILENCE_BEFORE_STEPS_S
    if now - ranks.last_sign < limit:
        return None
    message = f"no sign of life from any rank for {in_seconds(now - ranks.last_sign)}"
    where = "logs/ has what each rank said last"  # that Muster then ends the ranks explains nothing
    return Result("failed", message, where, step=state.step, cause=Cause.NOT_KNOWN, by_inquest=True)
