"""`clean` parses a host's list strictly and removes only what is named, old enough and not used by a container."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from deploy.core.errors import BadAnswer, UsageError
from deploy.engine.engine import Stored
from deploy.host import commands, leftovers
from deploy.host.leftovers import InUse, Selection

ANSWER = """now 1000000
user ops
runs old 100000 2048
runs young 999990 10
runs alive 100000 10
folders 0123abcd 100000 10
folders coming.4567abcd 100000 10
caches 1000/triton 100000 100
data 89abcdef 100000 400
data fedcba98 999990 400
data coming.dead 100000 4
pushed muster-code:latest 1970-01-06T18:53:20+0000
pushed gone:latest 1970-01-06T18:53:20+0000
"""
OURS = {"muster.user": "ops", "muster.packages": "x"}
IMAGES = [
    Stored("muster-code:latest", {"muster.image": "m"}, 4 << 20, False),
    Stored("theirs:latest", {"muster.image": "m"}, 1, False),
    Stored("gone:latest", {}, 1, False),
]
VOLUMES = [
    Stored("muster-packages-1", OURS, None, False),
    Stored("muster-packages-2", {**OURS, "muster.user": "bob"}, 1, False),
    Stored("data", {"muster.user": "ops"}, 1, False),
    Stored("muster-cache-tools-1000", {"muster.cache": "x", "muster.user": "ops"}, 1, True, "1970-01-02T03:46:40Z"),
]
HAD = InUse(frozenset({"alive"}), frozenset({"4567abcd 89", "fedcba98"}))


def kept(had=HAD):
    return leftovers.parse(ANSWER, had, IMAGES, VOLUMES)


def names(wanted, had=HAD):
    goes, stays = leftovers.chosen(kept(had), wanted)
    return {thing.name for thing in goes}, {thing.name for thing in stays}


def test_the_answer_is_parsed_with_ages_and_sizes():
    things = {thing.name: thing for thing in kept()}
    assert (things["old"].age_s, things["old"].bytes, things["old"].used) == (900_000, 2 << 20, False)
    assert (things["muster-packages-1"].age_s, things["muster-packages-1"].bytes) == (None, None)
    assert things["alive"].used
    assert things["muster-cache-tools-1000"].age_s == 900_000
    assert not things.keys() & {"theirs:latest", "gone:latest", "muster-packages-2", "data"}


def test_only_named_things_are_removed_and_never_what_a_container_uses():
    assert names(Selection()) == (set(), set())
    assert names(Selection(runs=("old", "alive"))) == ({"old"}, {"alive"})
    assert names(Selection(runs=("all",))) == ({"old", "young"}, {"alive"})
    assert names(Selection(kinds=frozenset({"caches"}))) == (set(), {"1000/triton", "muster-cache-tools-1000"})
    assert names(Selection(kinds=frozenset({"caches"})), InUse())[0] == {"1000/triton"}, "no run goes on"
    assert names(Selection(kinds=frozenset({"folders"}))) == ({"0123abcd"}, {"coming.4567abcd"})
    assert names(Selection(data=("89abcdef", "fedcba98"))) == ({"89abcdef"}, {"fedcba98"})
    assert names(Selection(data=("all",))) == ({"89abcdef", "coming.dead"}, {"fedcba98"}), "data alone"
    assert names(Selection(kinds=frozenset({"images"}), runs=("old",))) == ({"muster-code:latest", "old"}, set())


def test_an_age_limit_keeps_younger_things_and_those_of_unknown_age():
    every = Selection(("all",), frozenset({"images", "folders", "packages", "caches"}), leftovers.parse_age("1d"))
    assert names(every)[0] == {"old", "muster-code:latest", "0123abcd"}
    assert [leftovers.parse_age(text) for text in ("90s", "2m", "3h", "1w")] == [90, 120, 10800, 604800]
    for text in ("", "0d", "d", "-1d", "1y", "1d "):
        with pytest.raises(UsageError):
            leftovers.parse_age(text)


def test_a_run_or_data_that_no_host_has_is_named():
    there = {"a": kept(), "b": []}
    wanted = Selection(runs=("old", "nope", "all"), data=("89abcdef", "old", "all"))
    assert leftovers.unknown(there, wanted) == [("runs", "nope"), ("data", "old")]


@pytest.mark.parametrize(
    "line",
    ["runs a/../b 1 1", "runs", "runs $(id) 1 1", "runs a x 1", "runs a 1 -1"],
)
def test_an_odd_line_is_a_bad_answer(line):
    with pytest.raises(BadAnswer):
        leftovers.parse(f"now 5\n{line}\n", InUse())
    with pytest.raises(BadAnswer):
        leftovers.parse("", InUse())


def test_a_run_in_use_on_one_host_is_kept_on_all_since_they_may_share_a_home():
    shared = leftovers.mark_shared_runs({"a": kept(InUse()), "b": kept()})
    goes, stays = leftovers.chosen(shared["a"], Selection(runs=("all",), kinds=frozenset({"caches"})))
    assert {thing.name for thing in stays} == {"alive", "muster-cache-tools-1000"}
    assert "1000/triton" in {thing.name for thing in goes}


def test_files_under_a_former_host_name_are_listed_but_never_removed(tmp_path, monkeypatch):
    """A rented host comes back with another name: once, gigabytes of its environments were listed nowhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("former", os.uname().nodename):
        (tmp_path / f".muster/bare/{name}/volumes").mkdir(parents=True)
    (tmp_path / ".muster/bare/linked").symlink_to(tmp_path / ".muster/bare/former")
    os.utime(tmp_path / ".muster/bare/former/volumes", (1, time.time() + 500))
    answer = subprocess.run(commands.script("clean-list"), capture_output=True, text=True, check=True).stdout
    (thing,) = leftovers.parse(answer, InUse(frozenset({"alive"})))
    assert (thing.kind, thing.name, thing.used, thing.age_s) == ("elsewhere", "bare/former", False, 0)
    everything = Selection(("all",), frozenset(leftovers.KINDS) - {"elsewhere"}, 0, ("all",))
    assert leftovers.chosen([thing], everything) == ([], [])
