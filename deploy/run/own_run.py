"""Explain how a run of Muster ended, from its outcome and its story; its logs add lines and details. Pure.

A log has the end of each start of a script, but does not tell which of them ended the run. A rank that is killed or
that hangs writes nothing. The command that followed the run saw all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from ..causes.end_causes import Cause
from ..causes.table import end_of
from ..core.text import several
from ..explain.cause import Explanation, explain
from .inquest.causes import Finding
from .state.story import Happening

# With these causes, the logs may show more than the verdict: which exception it was, or what went wrong before it.
_OPEN_CAUSES = (Cause.EXCEPTION, Cause.NOT_KNOWN, Cause.SET_UP)
_MOST_LINES = 6


@dataclass(frozen=True)
class OwnRun:
    """What a run folder has. `outcome` is empty if no end is recorded; `story` is that of the last start."""

    name: str
    outcome: Mapping[str, Any] = field(default_factory=dict)
    story: Sequence[Happening] = ()


def of_run(shown: Explanation, run: OwnRun) -> Explanation:
    """The explanation of a run from its verdict and its story; `shown` is the explanation from its logs alone."""
    grave = tuple(line for line in run.story if line.grave)
    shown = replace(shown, story=grave[-_MOST_LINES:], silent=())
    verdict = run.outcome.get("verdict")
    page = f"muster report --run {run.name}"
    if verdict == "done":
        restarts = _restarted(run)
        after = f", after {several(restarts, 'restart')}" * bool(restarts)
        what = f"the run ended well{after} (the run's own verdict)"
        good = Explanation("", what, next=page, story=shown.story, ended_well=True)
        return replace(good, contradicted=_contradiction(shown, good, run))
    if verdict == "stopped" or run.outcome.get("cause") == Cause.ENDED:
        return _ended_by_somebody(shown, run, page)
    end = _verdict(run.outcome) if run.outcome else _trouble(run.story)
    if end is None or (not end.node and end.cause in _OPEN_CAUSES and (shown.cause or not run.outcome)):
        return shown
    return _failed(shown, run, end)


def _ended_by_somebody(shown: Explanation, run: OwnRun, page: str) -> Explanation:
    """The explanation if a person or a scheduler ended the run: trouble before that may be the reason."""
    words = str(run.outcome.get("message") or "stopped").partition("\n")[0]
    before = trouble_before(run.story)
    tail = f"; before that: {before.message}" if before else ""
    what = f"somebody ended the run: {words} (the run's own verdict){tail}"
    return Explanation("stopped", what, next=page, first=_who(before) if before else "", story=shown.story)


def trouble_before(story: Sequence[Happening]) -> Finding | None:
    """What was wrong when somebody ended a run: the last trouble that no restart had resolved."""
    return _trouble(story, lasting=True)


def _verdict(outcome: Mapping[str, Any]) -> Finding:
    """The end recorded in outcome.json."""
    rank, message = outcome.get("rank"), str(outcome.get("message") or outcome.get("verdict") or "")
    cause = Cause.of_slug(outcome.get("cause")) or Cause.NOT_KNOWN
    return Finding(cause, message, str(outcome.get("node") or ""), rank if isinstance(rank, int) else None)


def _logs(end: Finding) -> tuple[str, ...]:
    """The names of the logs with the words of the rank or node that failed, the rank's own log first."""
    return tuple(filter(None, ("" if end.rank is None else f"rank-{end.rank}", end.node)))


def _who(end: Finding) -> str:
    """The rank and its node, or the one that is known."""
    if end.rank is None:
        return end.node
    return f"rank {end.rank} on {end.node}" if end.node else f"rank {end.rank}"


def _trouble(story: Sequence[Happening], lasting: bool = False) -> Finding | None:
    """The last trouble in the story. A restart of all ranks is no trouble itself, but the reason for it is.

    `lasting`: leave out trouble that a restart has resolved, and an end that the stop itself caused.
    """
    for line in reversed(story):
        if lasting and line.trouble and line.trouble.cause == Cause.ENDED:
            continue
        if line.moves or (lasting and line.restart):
            return None
        if line.trouble:
            return line.trouble
    return None


def _failed(shown: Explanation, run: OwnRun, end: Finding) -> Explanation:
    """The explanation of this end, by its cause, by the words of its exception, or by the log of the same rank."""
    again = "all ranks have started again since, and " * bool(_restarted(run))
    by = "the run's own verdict" if run.outcome else f"the run's story; {again}no end of the run is recorded"
    at_end = any(line.node in _logs(end) for line in shown.evidence)
    alone = not _restarted(run) and (at_end or not end.node)
    more = shown.cause or (shown.maybe and end.cause != Cause.EXCEPTION)
    is_open = end.cause in _OPEN_CAUSES or (end.cause == Cause.LEFT_EARLY and at_end)
    if alone and more and is_open:  # the rank's log shows more about the same end than the verdict
        return replace(shown, first=_who(end) or shown.first)
    head, _, _ = end.message.partition("\n")
    what = f"{head} ({by})"
    base = Explanation(end.cause.entry, what)
    if end.cause in _OPEN_CAUSES:
        words = by_words(end)
        if words.cause:
            base = replace(words, what=f"{words.what} ({by})")
        elif end.cause == Cause.EXCEPTION:
            base = replace(words, cause="exception", what=what, maybe=())
    same = alone and base.cause in (shown.cause, *shown.maybe)
    lines = shown.evidence if same and not base.evidence else base.evidence
    quoted = _logs(end) if base.evidence else ()
    base = replace(base, evidence=lines, first=_who(end), story=shown.story, victims=shown.victims, quoted=quoted)
    hint = str(run.outcome.get("hint") or "")
    return replace(base, hint=hint, next=_next(run, base), contradicted=_contradiction(shown, base, run))


def by_words(end: Finding) -> Explanation:
    """The explanation from the words of an exception, without those about the rank that ended with it.

    They are the indented lines after the message's first line, or in that line, what comes after a colon: before it are
    the words about the rank, or the exception's class, a single word. A line that is not indented is about what
    followed from the exception.
    """
    head, *rest = end.message.splitlines() or [""]
    who, _, error = head.partition(": ")
    own = "\n".join(line.strip() for line in takewhile(lambda line: line.startswith(" "), rest))
    return explain({end.node or "the run": own or error * (" " in who) or head})


def _next(run: OwnRun, explanation: Explanation) -> str:
    """The command to type next: `muster why` if no end is recorded, else a fix for the error, or the run's page."""
    if explanation.cause == "host-memory":
        return "free -h; dmesg -T | grep -i oom"
    if not run.outcome:
        return f"muster why --run {run.name}"
    return explanation.next if explanation.quoted else f"muster report --run {run.name}"


def _restarted(run: OwnRun) -> int:
    restarts = run.outcome.get("restarts")
    return max(restarts if isinstance(restarts, int) else 0, sum(line.restart for line in run.story))


def _contradiction(shown: Explanation, explanation: Explanation, run: OwnRun) -> str:
    """How the logs alone contradict the run's verdict; empty if they do not."""
    well = explanation.ended_well and shown.cause == "loss-nan"  # a loss of NaN ends no run
    if well or not shown.cause or end_of(shown.cause) == end_of(explanation.cause):
        return ""
    line = shown.evidence[0] if shown.evidence else None
    where = f" ({line.node}:{line.number})" if line else ""
    why = "Muster saw how each rank ended"
    if _restarted(run):
        why = "a log shows the end of every start, and Muster started the ranks again"
    return f"the logs alone suggest {shown.cause}{where}: {why}"
