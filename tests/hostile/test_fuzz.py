"""Answers of hosts made wrong in a fixed order, and what was found before: a value or a fault in words, never more."""

from __future__ import annotations

import pytest

from deploy.core.errors import DeployError
from tests.hostile.fuzz import running
from tests.hostile.fuzz.entries import ENTRIES

SLOW = ("conversation", "proof", "mirrored", "ranks", "metrics", "documents", "report_page", "records")
each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


@each
def test_answers_as_they_should_be_are_read(entry) -> None:
    for data in entry.samples:
        try:
            entry.run(data)
        except DeployError as fault:
            pytest.fail(f"{fault.message}: {data[:300]!r}")


@each
def test_what_was_found_before_stays_mended(entry) -> None:
    assert {data[:100]: wrong for data in running.corpus(entry) if (wrong := running.tried(entry, data))} == {}


@each
@pytest.mark.holds("odd-answers")
def test_odd_answers_are_a_fault_in_words(entry) -> None:
    findings, _ = running.rounds(entry, seed=1, count=30 if entry.name in SLOW else 200, keep=False)
    assert not findings


def test_the_memory_of_all_this_is_bounded() -> None:
    entry = next(each for each in ENTRIES if each.name == "probed")
    before = running.memory_mb()
    for data in (b'{"do": "facts", "names": ' + b"[" * 1_000_000, b'{"do": "x", "a": "' + b"y" * 4_000_000 + b'"}'):
        assert running.tried(entry, data) == ""
    assert running.memory_mb() - before < running.MOST_MB
