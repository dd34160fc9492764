"""The agent sees from outside which ranks are stuck, whatever their host's clock does."""

import os
import time

import pytest

from trainer.node.ending.rank_lives import Life
from trainer.node.hang import stuck_ranks
from trainer.node.hang.stuck_ranks import Busy, StuckRanks


class Rank:
    """A rank that this process plays: its clocks, and what it does at a look."""

    def __init__(self, outcome, monkeypatch):
        self.clock, self.passed, self.stopped, self.outcome = time.time(), 100.0, False, outcome
        self.life = Life(0, 0, 0, 2, os.getpid(), began=self.clock - 1000)
        monkeypatch.setattr(stuck_ranks.time, "time", lambda: self.clock)
        monkeypatch.setattr(stuck_ranks.time, "monotonic", lambda: self.passed)
        monkeypatch.setattr(stuck_ranks, "_busy", lambda pids: {pid: Busy(1.0, 0, self.stopped) for pid in pids})
        self.watch = StuckRanks(outcome, None)

    def looks(self, count, stuck_at=""):
        """Return what the agent reports about the rank at this many looks, about two seconds apart."""
        told = []
        for _ in range(count):
            self.clock, self.passed = self.clock + 2.1, self.passed + 2.1
            if stuck_at:
                head = f'Look {{"t": {self.clock}, "pid": {os.getpid()}, "step": 0, "main": "0x1"}}'
                call = f'Thread 0x1 (most recent call first):\n  File "{stuck_at}", line 4 in wait'
                with (self.outcome / "0.stacks").open("a") as file:
                    file.write(f"{head}\n{call}\n")
            told += [about for _, about in self.watch.look([self.life])]
        return told


@pytest.fixture
def rank(tmp_path, monkeypatch):
    return Rank(tmp_path, monkeypatch)


def test_a_rank_that_moves_again_is_seen_although_the_clock_was_set_back(rank):
    rank.stopped = True
    assert [about["doing"] for about in rank.looks(3)] == ["stopped"]
    rank.clock -= 3600
    rank.stopped = False
    assert rank.looks(1) == [None]
    assert not rank.watch.stuck_ranks([rank.life]), "nobody ends it for what was true an hour later"


def test_a_rank_that_hangs_while_the_clock_is_set_back_is_seen_within_a_minute(rank):
    rank.life = Life(0, 0, 0, 2, os.getpid(), began=rank.clock)
    rank.looks(3, "/home/me/train.py")
    rank.clock -= 3600
    told = rank.looks(30, "/home/me/train.py")
    assert [about["file"] for about in told] == ["/home/me/train.py"]
    assert 0 < told[0]["since_s"] < 60
