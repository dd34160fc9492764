"""Hosts' answers, damaged in a fixed order, and earlier findings: each gives a value or a readable error."""

from __future__ import annotations

import pytest

from deploy.core.errors import DeployError
from tests.hostile.fuzz import running
from tests.hostile.fuzz.entries import ENTRIES

SLOW = ("conversation", "proof", "mirrored", "ranks", "metrics", "documents", "report_page", "records")
each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


@each
def test_correct_answers_are_read(entry) -> None:
    for data in entry.samples:
        try:
            entry.run(data)
        except DeployError as fault:
            pytest.fail(f"{fault.message}: {data[:300]!r}")


@each
def test_earlier_findings_stay_fixed(entry) -> None:
    assert {data[:100]: wrong for data in running.corpus(entry) if (wrong := running.tried(entry, data))} == {}


@each
@pytest.mark.holds("odd-answers")
def test_odd_answers_give_a_readable_error(entry) -> None:
    findings, _ = running.rounds(entry, seed=1, count=30 if entry.name in SLOW else 200, keep=False)
    assert not findings


def test_parsing_uses_bounded_memory() -> None:
    entry = next(each for each in ENTRIES if each.name == "probed")
    before = running.memory_mb()
    for data in (b'{"do": "facts", "names": ' + b"[" * 1_000_000, b'{"do": "x", "a": "' + b"y" * 4_000_000 + b'"}'):
        assert running.tried(entry, data) == ""
    assert running.memory_mb() - before < running.MOST_MB
