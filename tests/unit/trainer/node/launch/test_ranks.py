"""What torchrun's process finds of its ranks, and notes for the agent."""

from types import SimpleNamespace

import pytest

from trainer.node.ending import rank_lives
from trainer.node.ending.culprit import Failure, first_to_fail
from trainer.node.ending.judge_below import Judged
from trainer.node.ending.script_verdict import LastWords

pytestmark = pytest.mark.torch


def test_of_two_that_one_look_finds_ended_the_one_that_crashed_failed_first(tmp_path, monkeypatch):
    """A rank that leaves with a code of its own as its peer goes is noted in the order of the ranks."""
    ranks = pytest.importorskip("trainer.node.launch.ranks")
    monkeypatch.setenv("MUSTER_OUTCOME_DIR", str(tmp_path))
    config = SimpleNamespace(nproc_per_node=2)
    both = ranks.Ranks(config, ["train.py"], pipes=[])
    both._generation = SimpleNamespace(first_rank=0)
    for local, code in enumerate((1, -11)):
        both._processes[local] = Judged(SimpleNamespace(pid=10 + local, poll=lambda code=code: code), {})
        both._error_files[local] = ""
        both.running.add(local)
        own = {"RANK": str(local), "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "0"}
        rank_lives.note_begin(local, 10 + local, own)
    assert both.look().keys() == {0, 1}
    ends = rank_lives.Ends(tmp_path)
    ends.read()
    first = first_to_fail(Failure(life, LastWords(), "") for life in ends.lives.values())
    assert (first.life.rank, first.life.code) == (1, -11)
