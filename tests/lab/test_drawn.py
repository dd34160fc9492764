"""Draws: a seed repeats its draws, marks match the outcome, and today's rules judge the recorded answers correctly."""

import itertools
from collections import Counter

import pytest

from deploy.causes.finding import UNKNOWN, Finding
from deploy.causes.table import ROWS
from deploy.preflight import Verdict
from lab import job
from lab.drawn import recorded, score
from lab.drawn.draw import draw, draws
from lab.drawn.part import Part
from lab.drawn.settings import REHEARSED

# Causes that a part accepts although no rule reports them yet: it would be right to report them.
NOBODY_SAYS = {"connections-limited", "rehearsal-failed"}


def drops(causes, *subjects, seen=()):
    """A part, as a draw would contain it."""
    return Part("", lambda lab: None, frozenset(causes), frozenset(map(frozenset, subjects)), frozenset(seen))


def said(cause, hosts, link=None, level="fault"):
    """A verdict with one finding."""
    return Verdict((Finding(cause, "links", tuple(hosts), "", link=link, level=level),))


def test_a_seed_repeats_its_draws_and_another_seed_gives_others():
    first, again, other = ([each.words for each in itertools.islice(draws(seed), 40)] for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_draws_have_one_to_three_parts_and_every_second_one_is_harmless():
    made = [draw(3, number) for number in range(200)]
    assert {len(each.parts) for each in made} == {1, 2, 3}
    assert all(any(part.harmful for part in each.parts) == (each.number % 2 == 0) for each in made)


def test_right_answers_are_known_causes_and_existing_hosts():
    for each in (draw(5, number) for number in range(600)):
        for part in each.parts:
            assert part.causes | part.seen <= ROWS.keys() | NOBODY_SAYS | {*REHEARSED.split()}, part.words
            assert bool(part.causes) == bool(part.subjects), part.words
            assert all(set(subject) <= set(each.cast.hosts) for subject in part.subjects), part.words


@pytest.mark.parametrize(
    ("truth", "verdict", "word"),
    [
        (job.FAILS, said("data-ports-dropped", "b"), score.CAUSE),
        (job.FAILS, said("data-ports-dropped", "c"), score.PLACE),
        (job.FAILS, said("one-way", "b"), score.OBSERVED),
        (job.FAILS, said("clock-skew", "b"), score.WRONG),
        (job.FAILS, said("clock-skew", "b", level=UNKNOWN), score.UNSURE),
        (job.FAILS, said("data-ports-dropped", "b", level="warning"), score.GREEN),
        (job.SLOW, said("data-ports-dropped", "b", level="warning"), score.CAUSE),
        (job.FAILS, Verdict(()), score.GREEN),
        (job.FINE, Verdict(()), score.QUIET),
        (job.FINE, said("data-ports-dropped", "b", level="warning"), score.QUIET),
        (job.FINE, said("data-ports-dropped", "b", level=UNKNOWN), score.REFUSED),
    ],
)
def test_a_mark_follows_the_run_the_cause_and_the_place(truth, verdict, word):
    assert score.mark([drops({"data-ports-dropped"}, "b", seen={"one-way"})], truth, verdict).word == word


def test_one_finding_may_merge_the_hosts_of_two_parts_and_of_no_other():
    parts = [drops({"no-route"}, "a"), drops({"no-route"}, "b")]
    assert score.mark(parts, job.FAILS, said("no-route", "ab")) == score.Mark(score.CAUSE, (0, 1))
    assert score.mark(parts, job.FAILS, said("no-route", "abc")).word == score.PLACE


def test_a_link_is_named_by_its_ends_or_by_the_end_that_breaks_it():
    part = drops({"arp-wrong"}, "ab", "a")
    assert score.mark([part], job.FAILS, said("arp-wrong", "a")).word == score.CAUSE
    assert score.mark([part], job.FAILS, said("arp-wrong", "c", link=("b", "a"))).word == score.CAUSE
    assert score.mark([part], job.FAILS, said("arp-wrong", "b")).word == score.PLACE


def test_a_confidence_interval_contains_its_share_and_narrows():
    assert score.interval(0, 50)[0] == 0.0
    low, high = score.interval(45, 50)
    assert low < 0.9 < high
    assert score.interval(450, 500)[0] > low


def test_todays_rules_judge_the_recorded_answers_as_well_as_they_did():
    entries = [entry for entry in recorded.load() if entry["answers"]]
    marks = Counter()
    for entry in entries:
        fails = entry["truth"] != job.FINE
        marks[fails, recorded.judged(entry)[0].word] += 1
    fails = sum(count for (broken, _), count in marks.items() if broken)
    assert sum(marks[True, word] for word in score.RIGHT) >= 0.85 * fails, marks
    assert marks[False, score.REFUSED] <= 0.04 * (len(entries) - fails), marks
