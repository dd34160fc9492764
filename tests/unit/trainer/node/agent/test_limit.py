"""A node stops once its hours are over, however often its host restarts it in the meantime."""

import os

import pytest

from trainer.node.agent import limit
from trainer.node.agent.limit import HOURS, Limit, why_stopped


@pytest.fixture
def clock(monkeypatch):
    """The nodes' clock, which the test moves: `now` in seconds; `ahead`: by how much the wall clock is set forward."""

    class Clock:
        now, ahead = 1_000_000.0, 0.0

    monkeypatch.setattr(limit.time, "time", lambda: Clock.now + Clock.ahead)
    monkeypatch.setattr(limit.time, "monotonic", lambda: Clock.now)
    return Clock


def of(folder, hours="0.5", start="a", name="n0"):
    return Limit(folder, name, {HOURS: hours, "PET_RDZV_ID": start} if hours else {})


def test_the_limit_is_reached_once_its_hours_are_over_and_reported_once(tmp_path, clock):
    node = of(tmp_path)
    clock.now += 1799
    assert not node.look()
    assert not why_stopped(tmp_path, "a")
    clock.now += 1
    assert [node.look(), node.look()] == [True, False]
    assert node.reached
    assert node.words == "reached its limit of 0.5 h (--max-hours)"
    assert why_stopped(tmp_path, "a") == node.words
    assert not why_stopped(tmp_path, "another start")
    of(tmp_path, name="n1")  # the first node's limit stops it before its own time is over
    assert why_stopped(tmp_path, "a") == node.words


def test_a_restarted_node_has_the_time_that_is_left_and_a_new_start_of_the_run_all_of_it(tmp_path, clock):
    of(tmp_path)
    clock.now += 1700
    again, anew, other = of(tmp_path), of(tmp_path, name="n1"), of(tmp_path / "other")
    clock.now += 100
    assert [node.look() for node in (again, anew, other)] == [True, False, False]
    assert not of(tmp_path, start="b").look()


def test_a_slurm_job_has_one_limit_across_requeues_and_the_next_job_has_its_own(tmp_path, clock):
    def start(job, again=""):
        given = {"MUSTER_ALL_SIGNALLED": "1", "SLURM_JOB_ID": job, "PET_RDZV_ID": f"slurm-{job}-0-{again}"}
        return Limit(tmp_path, "n0", {HOURS: "0.5", **given})

    start("7", "0")
    clock.now += 1801
    assert start("7", "1").look()
    assert not start("8", "0").look()


@pytest.mark.parametrize("ahead", [5 * 3600.0, -5 * 3600.0])
def test_setting_the_clock_neither_ends_the_run_early_nor_extends_it(tmp_path, clock, ahead):
    node = of(tmp_path)
    clock.ahead = ahead
    assert not node.look()
    clock.now += 1800
    assert node.look()


def test_without_hours_there_is_no_limit_and_nothing_is_written(tmp_path, clock):
    node = of(tmp_path, hours="")
    clock.now += 1e9
    assert not node.look()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "a", "a soon", "a 1 2 3 reached"])
def test_odd_content_in_the_limit_file_makes_no_difference(tmp_path, clock, text):
    of(tmp_path)
    (file,) = (tmp_path / "nodes").iterdir()
    file.write_text(text)
    assert not why_stopped(tmp_path, "a")
    if "1" not in text:
        node = of(tmp_path)
        clock.now += 1801
        assert node.look()


def test_a_node_without_a_writable_folder_keeps_to_its_limit(tmp_path, clock):
    (tmp_path / "nodes").write_text("in the way")
    nodes = of(tmp_path), of(None)
    clock.now += 1801
    assert [node.look() for node in nodes] == [True, True]


@pytest.mark.parametrize("name", [".n0.limit", ".of-the-script.limit"])
def test_a_pipe_in_place_of_the_limit_file_blocks_nobody(tmp_path, clock, name):
    (tmp_path / "nodes").mkdir()
    os.mkfifo(tmp_path / "nodes" / name)
    node = of(tmp_path)
    assert not why_stopped(tmp_path, "a")
    clock.now += 1801
    assert node.look()
    assert why_stopped(tmp_path, "a") == node.words
