"""How a rehearsal changes doubtful findings: problems that a run may survive."""

from dataclasses import replace

from deploy.causes.finding import FAULT, UNKNOWN, WARNING, Finding
from deploy.preflight import confidence, judge
from lab.answers import answers

LIMIT = Finding("few-ports", "ports", ("a",), "few ports", (), "", "", UNKNOWN)
PROOF = Finding("proof-failed", "proof", ("a", "b"), "the collectives fail", (), "", "", UNKNOWN)
FULL = Finding("disk-full", "proof", ("b",), "b: no space left", (), "", "", FAULT)


def verdict(*findings: Finding, rehearsed: str = "2 ranks met"):
    return replace(judge(answers()), findings=findings, rehearsed=rehearsed)


def test_a_rehearsal_that_succeeds_turns_doubts_into_warnings():
    passed = confidence.after_rehearsal(verdict(LIMIT), [LIMIT])
    assert passed.ok
    assert [finding.level for finding in passed.findings] == [WARNING]


def test_without_a_rehearsal_the_doubts_stay():
    assert not confidence.after_rehearsal(verdict(LIMIT, rehearsed=""), [LIMIT]).ok


def test_an_unexplained_failure_between_hosts_is_blamed_on_the_doubts():
    failed = confidence.after_rehearsal(verdict(PROOF, LIMIT), [LIMIT])
    assert [finding.cause for finding in failed.findings] == ["few-ports", "proof-failed"]


def test_a_cause_that_the_rehearsal_names_comes_first():
    failed = confidence.after_rehearsal(verdict(FULL, LIMIT), [LIMIT])
    assert failed.first == FULL
