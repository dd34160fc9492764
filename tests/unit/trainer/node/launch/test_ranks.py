"""What torchrun's process finds out about its ranks, and notes for the agent."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from lab import waiting
from muster.stop import UNASKED
from tests.started import started
from trainer.node.ending import rank_lives
from trainer.node.ending.culprit import Failure, first_to_fail
from trainer.node.ending.judge_below import JudgedRank
from trainer.node.ending.script_verdict import LastWords

pytestmark = pytest.mark.torch


@pytest.fixture
def both(tmp_path, monkeypatch):
    """Return a function that makes two ranks of one generation that have ended with these codes."""
    ranks = pytest.importorskip("trainer.node.launch.ranks")
    monkeypatch.setenv("MUSTER_OUTCOME_DIR", str(tmp_path))

    def make(*codes, **given):
        of_node = ranks.Ranks(SimpleNamespace(nproc_per_node=2), ["train.py"], pipes=[])
        of_node._generation = SimpleNamespace(first_rank=0)
        for local, code in enumerate(codes):
            own = {"RANK": str(local), "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "0"}
            process = SimpleNamespace(pid=10 + local, poll=lambda code=code: code)
            life = {"MUSTER_LIFE": f"{local}-0-1"} if given else {}
            of_node._processes[local] = JudgedRank(process, {**given, **life})
            of_node._error_files[local] = ""
            of_node.running.add(local)
            rank_lives.note_begin(local, 10 + local, own)
        return of_node

    return make


def test_of_two_ranks_that_one_look_finds_ended_the_crashed_one_failed_first(tmp_path, both):
    """One look notes ends in the order of the ranks, so the rank that only lost its crashed peer may come first."""
    assert both(1, -11).look().keys() == {0, 1}
    ends = rank_lives.Ends(tmp_path)
    ends.read()
    first = first_to_fail(Failure(life, LastWords(), "") for life in ends.lives.values())
    assert (first.life.rank, first.life.code) == (1, -11)


def test_a_process_with_the_reused_number_of_an_ended_rank_lives_on(both):
    """A host starts many programs before the ranks begin again, and the kernel reuses process numbers."""
    of_node = both(1)
    of_node.look()
    with started(["sleep", "60"], start_new_session=True) as other:
        of_node._processes[0].pid = other.pid
        of_node.end_left_behind()
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)
        other.kill()


def test_processes_that_a_rank_left_behind_end_before_the_ranks_begin_again(both):
    of_node = both(1)
    of_node.look()
    leaves = "import os, time\nif os.fork(): print(flush=True); os._exit(1)\ntime.sleep(60)"
    with started([sys.executable, "-c", leaves], start_new_session=True, stdout=subprocess.PIPE) as rank:
        rank.wait()
        of_node._processes[0].pid = rank.pid
        of_node.end_left_behind()
        waiting.until(lambda: rank.stdout.read() == b"\n", "the child has ended")


def test_a_failed_rank_is_seen_while_another_ranks_helpers_have_time_to_end(tmp_path, both):
    """Four ranks that each left a server behind took half a minute to end, one after the other."""
    (tmp_path / UNASKED).touch()
    (tmp_path / "helper.py").write_text("print(flush=True); input()")
    given = {**os.environ, "MUSTER_LIFE": "0-0-1"}
    line, pipe = [sys.executable, str(tmp_path / "helper.py")], subprocess.PIPE
    with started(line, env=given, stdin=pipe, stdout=pipe) as helper:
        helper.stdout.readline()
        node = both(0, 1, MUSTER_OUTCOME_DIR=str(tmp_path))
        assert (node.look().keys(), node.running) == ({1}, {0})
        helper.communicate(b"\n")
    waiting.until(lambda: node.look() and not node.running, "both have ended")
    ends = rank_lives.Ends(tmp_path)
    ends.read()
    assert [life.code for _, life in sorted(ends.lives.items())] == [0, 1]
