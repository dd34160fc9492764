"""A rank's steps begin after those of earlier starts, and ignore those of another node's own world."""

import json
import os
import resource
import subprocess
import sys

import pytest

from muster.files import read_lines
from trainer.node.rank.place import Place, append


@pytest.fixture
def place_with(tmp_path, monkeypatch):
    """Return a function that returns the place of a rank 0 on node a, whose events file has these events."""

    def make(*events, node="a"):
        lines = [json.dumps({"t": 1.0, "kind": kind, **fields, "rank": 0}) for kind, fields in events]
        (tmp_path / "ranks").mkdir()
        (tmp_path / "ranks/rank-0.jsonl").write_text("\n".join(lines) + "\n")
        for name, value in {"RUN_DIR": tmp_path, "OUTCOME_DIR": tmp_path, "NODE": node}.items():
            monkeypatch.setenv(f"MUSTER_{name}", str(value))
        monkeypatch.setenv("RANK", "0")
        monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
        return Place()

    return make


def step(number, node="a"):
    return "step", {"step": number, "count": 1, "node": node}


def began(node="a"):
    return "began", {"attempt": 0, "node": node}


def test_a_start_continues_after_the_last_step_of_an_earlier_one(place_with):
    assert place_with(began(), step(8), began()).steps_before()[:2] == (8, False)


def test_a_start_continues_even_if_the_rank_was_on_another_node_before(place_with):
    assert place_with(began("b"), step(8, "b"), began()).steps_before()[:2] == (8, False)


def test_steps_continue_if_a_launcher_starts_its_ranks_again_itself(place_with):
    assert place_with(began(), step(8)).steps_before()[:2] == (8, False)


def test_steps_of_this_start_on_another_node_belong_to_that_nodes_own_world(place_with):
    assert place_with(began("b"), step(3, "b")).steps_before() == (0, False, False)


def test_steps_of_another_nodes_own_world_do_not_hide_earlier_steps(tmp_path, place_with):
    assert place_with(began(), step(5), began("b"), step(9, "b")).steps_before() == (5, False, False)


def started(attempt=0):
    return "started", {"attempt": attempt, "pid": 7, "node": "a"}


@pytest.mark.parametrize(
    ("events", "another"),
    [
        ((began(), started(), step(8)), True),
        ((began(), started(), step(3), began(), started(), step(8)), True),
        ((began(), started(), step(8), began()), False),  # Muster started it again
    ],
)
def test_a_program_after_another_one_in_the_same_start_is_no_restart(place_with, events, another):
    assert place_with(*events).steps_before() == (8, False, another)


def test_a_launcher_that_counts_its_restarts_starts_the_same_program_again(place_with, monkeypatch):
    place = place_with(began(), started(), step(8))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert Place().steps_before() == (8, False, False)
    assert place.steps_before().another


def test_only_one_living_process_at_a_time_reports_a_rank(place_with):
    """A shell script may train twice, one program after the other; a child next to its rank reports nothing."""
    place = place_with(began())
    claim = "from trainer.node.rank.place import Place; import sys; print(Place().claim('watch-0')); sys.stdin.read()"
    first = subprocess.Popen(
        [sys.executable, "-c", claim], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert first.stdout.readline() == "True\n"
    assert not place.claim("watch-0")
    first.communicate("")
    assert place.any_was_claimed("watch-0")
    assert place.claim("watch-0")
    assert not place.any_was_claimed("first-0")


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_pipe_or_link_in_place_of_a_claim_blocks_nobody(tmp_path, place_with, kind):
    place = place_with(began())
    name = tmp_path / f".watch-0.{place.life}"
    os.mkfifo(name) if kind == "pipe" else name.symlink_to(tmp_path / "other")
    assert not place.claim("watch-0")
    assert not (tmp_path / "other").exists()


def test_only_its_user_may_change_a_file_that_a_rank_writes(tmp_path):
    before = os.umask(0)
    try:
        append(str(tmp_path / "rank-0.jsonl"), {"kind": "began"})
    finally:
        os.umask(before)
    assert (tmp_path / "rank-0.jsonl").stat().st_mode & 0o777 == 0o644


def test_a_line_that_a_full_disk_has_cut_is_tried_again_and_spoils_no_later_line(tmp_path):
    path, (_, hard) = str(tmp_path / "rank-0.jsonl"), resource.getrlimit(resource.RLIMIT_FSIZE)
    full = append(path, {"kind": "began"}) + 10
    resource.setrlimit(resource.RLIMIT_FSIZE, (full, hard))
    try:
        with pytest.raises(OSError, match="no whole line"):
            append(path, {"kind": "started", "attempt": 0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    append(path, {"kind": "started", "attempt": 0})
    assert [row["kind"] for row in read_lines(tmp_path / "rank-0.jsonl")] == ["began", "started"]
