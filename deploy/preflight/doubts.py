"""What a rehearsal decides: problems that a run may do with, as calls that are answered at times. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..causes.finding import UNKNOWN, WARNING, Finding
from .answers import Answers
from .confidence import claimed, failed
from .findings import Verdict


def is_left_to_rehearsal(finding: Finding, answers: Answers) -> bool:
    """Whether a run may do with what speaks for it: calls that were answered at times, or few local ports.

    A limit of new connections answers some of many calls at once, and the few of a run pass it.
    """
    if finding.level != UNKNOWN or finding.cause == "few-ports":
        return finding.level == UNKNOWN
    seen = claimed(finding, failed(answers))
    if not seen:
        return finding.cause == "link-loss" and any((each[0], each[1]) in finding.cells for each in answers.often)
    return all(link.outcome == "at-times" for link in seen)


def doubts(verdict: Verdict, answers: Answers) -> list[Finding]:
    """The problems of the verdict, if a rehearsal may decide them all; else none."""
    problems = [*verdict.faults, *verdict.unknown]
    return problems if all(is_left_to_rehearsal(finding, answers) for finding in problems) else []


def after_rehearsal(tried: Verdict, doubts: Sequence[Finding]) -> Verdict:
    """The verdict of a rehearsal on these doubts.

    If it went through, they are warnings. If it failed between hosts and does not say why, they are the likeliest
    cause, and stand first.
    """
    problems = [*tried.faults, *tried.unknown]
    vague = [finding for finding in problems if finding.cause == "proof-failed" and len(finding.hosts) > 1]
    if all(finding in doubts for finding in problems):
        return _passed(tried, doubts) if tried.rehearsed else tried
    if any(finding not in doubts and finding not in vague for finding in problems):
        return tried
    rest = [finding for finding in tried.findings if finding not in doubts]
    return replace(tried, findings=(*doubts, *rest))


def _passed(verdict: Verdict, doubts: Sequence[Finding]) -> Verdict:
    words = "; yet the rehearsal went through"
    shown = [
        replace(finding, level=WARNING, text=finding.text + words) if finding in doubts else finding
        for finding in verdict.findings
    ]
    groups = {**verdict.groups, **{finding.group: WARNING for finding in doubts}}
    return replace(verdict, findings=tuple(shown), groups=groups)
