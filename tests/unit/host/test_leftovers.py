"""What is kept on a host is read strictly, and only what was named, is old enough and has no container goes."""

from __future__ import annotations

import pytest

from deploy.core.errors import BadAnswer, UsageError
from deploy.host import leftovers
from deploy.host.leftovers import Selection

ANSWER = """now 1000000
runs old 100000 2048 free
runs young 999990 10 free
runs alive 100000 10 used
images muster-code:latest 500000 4096 free
packages muster-packages-1 0 0 free
caches 1000/huggingface 999000 100 free
caches 1000/triton 100000 100 used
"""


def names(wanted):
    goes, stays = leftovers.chosen(leftovers.parse(ANSWER), wanted)
    return {thing.name for thing in goes}, {thing.name for thing in stays}


def test_the_answer_is_read_with_ages_and_sizes():
    things = {thing.name: thing for thing in leftovers.parse(ANSWER)}
    assert (things["old"].age_s, things["old"].bytes, things["old"].used) == (900_000, 2 << 20, False)
    assert (things["muster-packages-1"].age_s, things["muster-packages-1"].bytes) == (None, None)
    assert things["alive"].used


def test_only_what_is_named_goes_and_never_what_a_container_has():
    assert names(Selection()) == (set(), set())
    assert names(Selection(runs=("old", "alive"))) == ({"old"}, {"alive"})
    assert names(Selection(runs=("all",))) == ({"old", "young"}, {"alive"})
    assert names(Selection(kinds=frozenset({"caches"}))) == ({"1000/huggingface"}, {"1000/triton"})
    assert names(Selection(kinds=frozenset({"images"}), runs=("old",))) == ({"muster-code:latest", "old"}, set())


def test_an_age_keeps_what_is_younger_and_what_has_no_known_age():
    every = Selection(("all",), frozenset({"images", "folders", "packages", "caches"}), leftovers.age("1d"))
    assert names(every)[0] == {"old", "muster-code:latest"}
    assert [leftovers.age(text) for text in ("90s", "2m", "3h", "1w")] == [90, 120, 10800, 604800]
    for text in ("", "0d", "d", "-1d", "1y", "1d "):
        with pytest.raises(UsageError):
            leftovers.age(text)


def test_a_run_that_no_host_has_is_named():
    there = {"a": leftovers.parse(ANSWER), "b": []}
    assert leftovers.unknown_runs(there, Selection(runs=("old", "nope", "all"))) == ["nope"]


@pytest.mark.parametrize(
    "line",
    [
        "runs a/../b 1 1 free",
        "runs a 1 1",
        "things a 1 1 free",
        "runs $(id) 1 1 free",
        "runs a x 1 free",
        "runs a 1 -1 x",
    ],
)
def test_an_odd_line_is_that_hosts_fault(line):
    with pytest.raises(BadAnswer):
        leftovers.parse(f"now 5\n{line}\n")
    with pytest.raises(BadAnswer):
        leftovers.parse("")
