"""All ranks stop after the same step, whenever each of them hears of the stop; with short steps they seldom ask."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from muster import agreement
from muster.agreement import Agreement

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Ranks:
    """Ranks in lockstep, each with its own clock: `seconds` per step. Messages are combined as in an all-reduce."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.seconds, self.messages = 0.0, seconds, dict[int, list]()
        monkeypatch.setattr(agreement.exchange, "rank_and_world", lambda group: (0, len(seconds)))
        monkeypatch.setattr(agreement.dist, "all_reduce", self._all_reduce)
        monkeypatch.setattr(agreement.dist, "barrier", lambda group: self.left.append("barrier"))
        monkeypatch.setattr(agreement.time, "monotonic", lambda: self.now)
        self.left, self.stops = [], [self._stop() for _ in seconds]
        self.each = [Agreement(stop, rank) for rank, stop in enumerate(self.stops)]
        self.steps = 0

    def _stop(self):
        return SimpleNamespace(asked=False, leave=lambda: self.left.append("left"))

    def _all_reduce(self, message, operation, group, async_op):
        assert async_op
        sent = self.messages.setdefault(group, [])
        sent.append(message.clone())
        number = len(sent) - 1

        def wait():
            message.copy_(torch.stack([each[number] for each in self.messages.values()]).amax(0))

        return SimpleNamespace(wait=wait)

    def step(self):
        """Take one more step and return the answer of each rank."""
        self.steps += 1
        answers = []
        for rank, one in enumerate(self.each):
            self.now = self.seconds[rank] * self.steps
            answers.append(one.all_stop())
        return answers

    @property
    def asked(self):
        """How often the ranks have asked each other."""
        return len(self.messages.get(0, []))


def test_all_ranks_stop_after_the_same_step_though_only_one_was_asked(monkeypatch):
    ranks = Ranks(monkeypatch, [1.0, 1.0, 1.0])
    assert [ranks.step() for _ in range(3)] == [[False] * 3] * 3
    ranks.stops[1].asked = True
    assert ranks.step() == [False] * 3, "the message is under way"
    assert ranks.step() == [True] * 3


def test_with_long_steps_the_ranks_ask_at_each_step(monkeypatch):
    ranks = Ranks(monkeypatch, [1.0, 1.0])
    for _ in range(10):
        ranks.step()
    assert ranks.asked == 10


@pytest.mark.parametrize(("seconds", "between"), [([0.001, 0.001], 16), ([0.06, 0.06], 4), ([0.001, 0.06], 4)])
def test_with_short_steps_the_slowest_rank_sets_how_often_all_ranks_ask(monkeypatch, seconds, between):
    ranks = Ranks(monkeypatch, seconds)
    asked_at = []
    for _ in range(200):
        before = ranks.asked
        assert ranks.step() == [False, False]
        asked_at += [ranks.steps] * (ranks.asked - before)
    assert {later - earlier for earlier, later in pairwise(asked_at[2:])} == {between + 1}


def test_a_single_rank_stops_when_it_is_asked_and_sends_nothing(monkeypatch):
    ranks = Ranks(monkeypatch, [1.0])
    assert ranks.step() == [False]
    ranks.stops[0].asked = True
    assert ranks.step() == [True]
    assert ranks.asked == 0
    ranks.each[0].leave()
    assert ranks.left == ["left"]


def test_a_training_that_ends_receives_the_pending_message_once(monkeypatch):
    ranks = Ranks(monkeypatch, [1.0, 1.0])
    ranks.stops[0].asked = True
    ranks.step()
    assert [one.settle() for one in ranks.each] == [True, True]
    assert [one.settle() for one in ranks.each] == [False, False]


def test_no_rank_leaves_before_all_reach_a_barrier(monkeypatch):
    ranks = Ranks(monkeypatch, [1.0, 1.0])
    ranks.each[0].leave()
    assert ranks.left == ["barrier", "left"]


def test_without_a_process_group_there_is_no_group_of_cpus():
    assert agreement.cpu_group() is None


@pytest.mark.parametrize(("backend", "made"), [("gloo", None), ("nccl", "a group of gloo")])
def test_ranks_with_an_nccl_group_exchange_messages_over_gloo(monkeypatch, backend, made):
    class Group(str):
        __slots__ = ()

    monkeypatch.setattr(agreement.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(agreement.dist, "get_backend", lambda: backend)
    monkeypatch.setattr(agreement.dist, "new_group", lambda backend: Group(f"a group of {backend}"))
    monkeypatch.setattr(agreement.dist, "ProcessGroup", Group)
    assert agreement.cpu_group() == made
