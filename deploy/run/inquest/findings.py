"""Decide who broke a run first, or left it early, and why, from the records of all ranks and nodes (state/). Pure.

Facts come before patterns: how a process ended, what the engine and the kernel report, which packets were not
acknowledged. Only after these does a rank's own error message decide its cause. Ranks that lost another rank are
victims, and are never named first. Among several causes the first in time decides.
"""

from __future__ import annotations

import signal

from ...causes.end_causes import Cause
from ...core.errors import DONE, SIGNALLED
from ...core.text import ranks_in_words
from ..state.evidence import Evidence
from ..state.nodes import CLOCKS_ALIKE_S
from . import collectives, hang, lasting, reach
from .blame import End, by_time, cause_of_end, cause_of_error, first_culprit
from .causes import Finding

_ENDS_SETTLE_S, _SIZES_SETTLE_S = 1.5, 4.5
_UNKNOWN_AFTER_S = 8.0
# For each trouble of a node: its cause, and the words that describe it and tell what to do.
_TROUBLES = {
    "paused": (Cause.STOPPED, " is paused: its container stays frozen until somebody runs `docker unpause` there"),
    "gone": (Cause.NODE_LOST, ": its container no longer exists; somebody removed it"),
    "closed": (
        Cause.SET_UP,
        ": somebody took away the permissions of the run's folder there, and the node cannot write into it; `ls "
        "-ld ~/.muster/runs/*` there shows them, `chmod u+rwx` restores them",
    ),
}
# The exit codes of a rank that SIGINT or SIGTERM asked to end: the signal itself, or a shell's code for it.
_STOP_CODES = frozenset(code for number in (signal.SIGINT, signal.SIGTERM) for code in (-number, SIGNALLED + number))


def findings(evidence: Evidence, now: float) -> list[Finding]:
    """All causes that are known at `now`, sorted by time, without those that only follow from another cause."""
    ending = [*_ended(evidence, now), *_paused(evidence), *reach.cut_off(evidence, now), *reach.unseen(evidence, now)]
    ending += _stopped(evidence) or ([] if ending else _stuck(evidence, now))
    return [*sorted(ending, key=lambda finding: finding.t), *lasting.findings(evidence, now)]


def _ended(evidence: Evidence, now: float) -> list[Finding]:
    """The finding about the rank that ended first by itself."""
    asked = _asked_to_end(evidence)
    called = {rank: of for rank, of in evidence.ranks.called.items() if rank in evidence.ranks.ends and not asked}
    if differ := collectives.disagreement(called):
        ranks, _ = collectives.alike(differ)[0]
        since = min(evidence.ranks.ends[rank].t for rank in differ)
        tie = len(collectives.alike(differ)) == 2 and len(ranks) * 2 == len(differ)
        culprit = None if tie else ranks[0]
        node = "" if culprit is None else evidence.ranks.began[culprit]
        return [Finding(Cause.MISMATCH, hang.disagreement(differ), node, culprit, t=since)]
    if not asked and (sizes := _sizes(evidence, now)):
        return [sizes]
    first = first_culprit(list(evidence.ranks.ends.values()))
    if first and (first.code < 0 or (now - first.t >= _ENDS_SETTLE_S and not evidence.gives_up)):
        return [_of_end(first, evidence)]
    return [] if first else _left(evidence)


def _asked_to_end(evidence: Evidence) -> bool:
    """Whether a signal asked the first ranks to end, as a stop does: each rank then left where it just was."""
    first = min((end.t for end in evidence.ranks.ends.values()), default=0.0)
    asked = [end.t for end in evidence.ranks.ends.values() if end.code in _STOP_CODES]
    return bool(asked) and min(asked) - first <= CLOCKS_ALIKE_S


def _sizes(evidence: Evidence, now: float) -> Finding | None:
    """A finding that ranks sent each other unexpected sizes. The culprit is the rank at another place than the rest."""
    words = [end for end in evidence.ranks.ends.values() if cause_of_error(end.error) == Cause.MISMATCH]
    if not words:
        return None
    since, all_ended = min(end.t for end in words), len(evidence.ranks.ends) == len(evidence.ranks.began)
    if now - since < _SIZES_SETTLE_S and not all_ended:
        return None
    calls = {rank: _last_call(rank, evidence) for rank in sorted(evidence.ranks.ends)}
    if len({place for place, _ in calls.values()}) > 1:  # at different places their sizes cannot be compared
        calls = {rank: (place, "") for rank, (place, _) in calls.items()}
    ranks: dict[str, list[int]] = {}
    for rank, (place, size) in calls.items():
        if place:
            ranks.setdefault(f"{place}{f' with {size}' if size else ''}", []).append(rank)
    groups = sorted(ranks.items(), key=lambda item: len(item[1]))
    text = "; ".join(f"{ranks_in_words(of)} in {place}" for place, of in groups)
    text = f"the ranks do not agree on the size of a collective: {text or words[0].error}"
    odd = len(groups) > 1 and len(groups[0][1]) < len(groups[1][1])
    culprit = groups[0][1][0] if odd else None
    node = "" if culprit is None else evidence.ranks.began[culprit]
    tail = "" if odd else "; Muster could not tell which of them is wrong"
    return Finding(Cause.MISMATCH, text + tail, node, culprit, t=since)


def _last_call(rank: int, evidence: Evidence) -> tuple[str, str]:
    """Where a rank that has ended called its last collective, and with which size; empty if not known."""
    if called := evidence.ranks.called.get(rank):
        return f"{called[-1].file}:{called[-1].line}", called[-1].size
    return evidence.ranks.ends[rank].place, ""


def _of_end(end: End, evidence: Evidence) -> Finding:
    error = f": {end.error}" if end.error else ""
    bare = " without an exception" if end.code > 0 and not end.error else ""
    text = f"{end.who} {end.how}{bare}{error}{_victims(evidence)}"
    return Finding(cause_of_end(end), text, end.node, end.rank, t=end.t)


def _left(evidence: Evidence) -> list[Finding]:
    ends = [end for end in evidence.ranks.ends.values() if evidence.ranks.trains(end.node)]
    left = sorted((end for end in ends if end.code == DONE), key=by_time)
    # A rank of Muster's own trainer ends with 0 if it leaves a verdict.
    if not left or len(left) == len(evidence.ranks.began) or evidence.gives_up:
        return []
    first, others = left[0], evidence.living
    victims = [end for end in ends if end.victim and end.t >= first.t]
    wait = others and all(
        rank in evidence.ranks.stuck and hang.waits(evidence.ranks.stuck[rank].doing) for rank in others
    )
    if not victims and not wait:
        return []
    lost = f"; {ranks_in_words(end.rank for end in victims)} lost it" if victims else ""
    waits = f"; {ranks_in_words(others)} still wait for it" if wait else ""
    text = f"{first.who} left early, with code 0{lost}{waits}"
    return [Finding(Cause.LEFT_EARLY, text, first.node, first.rank, t=first.t)]


def _paused(evidence: Evidence) -> list[Finding]:
    faults = []
    for node, (trouble, t) in evidence.nodes.troubles.items():
        ranks = evidence.ranks.ranks_on(node)
        who = f"{node} ({ranks_in_words(ranks)})" if ranks else node
        if trouble in _TROUBLES:
            cause, words = _TROUBLES[trouble]
            rank = None if cause == Cause.NODE_LOST else evidence.ranks.only_rank(node)
            faults.append(Finding(cause, f"{who}{words}", node, rank, t=t))
    return faults


def _stopped(evidence: Evidence) -> list[Finding]:
    faults = []
    for rank, stuck in evidence.ranks.stuck.items():
        doing, node = stuck.doing, stuck.doing.node
        at = f" at {doing.place}" if doing.place else ""
        how = {
            "stopped": "is stopped by a signal (SIGSTOP); `kill -CONT` resumes it",
            "traced": f"is stopped by a debugger ({doing.tracer}); it resumes when the debugger detaches",
            "frozen": "is frozen: somebody froze its cgroup (freezer); it resumes once the cgroup is thawed",
            "disk": f"waits for a disk that does not answer{at}: {doing.disk}; no signal ends such a wait",
        }.get(doing.doing)
        if how:
            cause = Cause.DISK_SILENT if doing.doing == "disk" else Cause.STOPPED
            faults.append(Finding(cause, f"rank {rank} ({node}) {how}", node, rank, t=stuck.since))
    return faults


def _stuck(evidence: Evidence, now: float) -> list[Finding]:
    """Ranks that are stuck, if nothing else explains it. While a rank moves, it may be evaluating: nothing is wrong."""
    living = evidence.living
    if not living or not living.keys() <= evidence.ranks.stuck.keys() or evidence.nodes.troubles:
        return []
    if evidence.gives_up or any(links.unanswered for links in evidence.ranks.links.values()):
        return []  # a rank has said why, or the links explain it, or will once both ends have reported
    doing = [evidence.ranks.stuck[rank].doing for rank in living]
    missing = [rank for rank in doing if not hang.waits(rank)]
    if not any(_needs_nobody(rank) for rank in doing):
        return []
    t = min(evidence.ranks.stuck[rank].since for rank in living)
    if alone := [rank for rank, of in sorted(evidence.ranks.alone.items()) if of.waits and rank in living]:
        of, node = evidence.ranks.alone[alone[0]], living[alone[0]]
        who = f"rank {alone[0]} ({node}) waits where no other rank joins it: {of.why}"
        text = f"no rank has made a step: {who}. {of.hint}"
        # If all of them wait like this, lasting.py reports it.
        return [Finding(Cause.ALONE, text, node, alone[0], t=t)] if len(alone) < len(living) else []
    what, disagree = hang.judge_stuck(doing)
    reached = max(rank.step for rank in doing)
    text = f"no rank has made a step{f' since step {reached}' if reached else ''}: {what}"
    if missing:
        first = min(missing, key=lambda rank: (not rank.error, evidence.ranks.stuck[rank.rank].since, rank.rank))
        cause = cause_of_error(first.error) if first.error else Cause.LOCKED_UP
    elif differ := collectives.disagreement({rank.rank: rank.collectives for rank in doing}):
        fewest, cause = collectives.alike(differ)[0][0], Cause.MISMATCH
        first = next(rank for rank in doing if rank.rank == fewest[0])
        if len(fewest) * 2 == len(differ):
            return [Finding(cause, text, t=t)]
    elif disagree:
        return [Finding(Cause.MISMATCH, text, t=t)]
    else:
        last = max(evidence.ranks.stuck[rank].reported for rank in living)
        return [Finding(Cause.NOT_KNOWN, text, t=t)] if now - last >= _UNKNOWN_AFTER_S else []
    return [Finding(cause, text, first.node, first.rank, t=t)]


def _needs_nobody(rank: hang.RankDoing) -> bool:
    """Whether it is a fault that this rank is stuck, even if no other rank waits for it.

    A busy rank may do work that no step counts, and so may a rank that pauses before its first step.
    """
    return rank.doing not in ("computes", "polls", "unseen") and (rank.doing != "script" or rank.step > 0)


def _victims(evidence: Evidence) -> str:
    lost = [end.rank for end in evidence.ranks.ends.values() if end.victim and end.code != DONE]
    return f"; {ranks_in_words(lost)} lost it" if lost else ""
