"""What a rehearsal decides: problems that a run may do with, as calls that are answered at times. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .answers import Answers
from .findings import UNKNOWN, WARNING, Finding, Verdict
from .sureness import claimed, failed


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


def are_all(verdict: Verdict, doubts: Sequence[Finding]) -> bool:
    """Whether the verdict of a rehearsal shows no other problem than these doubts."""
    return all(finding in doubts for finding in [*verdict.faults, *verdict.unknown])


def settled(verdict: Verdict, doubts: Sequence[Finding]) -> Verdict:
    """The verdict of a rehearsal that went through in spite of these doubts: they are warnings now."""
    words = "; yet the rehearsal went through"
    shown = [
        replace(finding, level=WARNING, text=finding.text + words) if finding in doubts else finding
        for finding in verdict.findings
    ]
    groups = {**verdict.groups, **{finding.group: WARNING for finding in doubts}}
    return replace(verdict, findings=tuple(shown), groups=groups)
