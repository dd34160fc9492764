"""What a rehearsal does to problems that a run may do with."""

from dataclasses import replace

from deploy.causes.finding import FAULT, UNKNOWN, WARNING, Finding
from deploy.preflight import confidence, judge
from lab.answers import answers

LIMIT = Finding("few-ports", "ports", ("a",), "few ports", (), "", "", UNKNOWN)
PROOF = Finding("proof-failed", "proof", ("a", "b"), "the collectives fail", (), "", "", UNKNOWN)
FULL = Finding("disk-full", "proof", ("b",), "b: no space left", (), "", "", FAULT)


def verdict(*findings: Finding, rehearsed: str = "2 ranks met"):
    return replace(judge(answers()), findings=findings, rehearsed=rehearsed)


def test_a_rehearsal_that_went_through_makes_doubts_warnings():
    passed = confidence.after_rehearsal(verdict(LIMIT), [LIMIT])
    assert passed.ok
    assert [finding.level for finding in passed.findings] == [WARNING]


def test_where_no_rehearsal_was_the_doubts_stay():
    assert not confidence.after_rehearsal(verdict(LIMIT, rehearsed=""), [LIMIT]).ok


def test_a_failure_between_hosts_without_a_reason_is_laid_to_the_doubts():
    failed = confidence.after_rehearsal(verdict(PROOF, LIMIT), [LIMIT])
    assert [finding.cause for finding in failed.findings] == ["few-ports", "proof-failed"]


def test_a_rehearsal_that_names_its_own_cause_stands_first():
    failed = confidence.after_rehearsal(verdict(FULL, LIMIT), [LIMIT])
    assert failed.first == FULL
