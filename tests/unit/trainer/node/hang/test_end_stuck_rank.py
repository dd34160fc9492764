"""Stuck ranks are ended only if nothing moves anywhere, other ranks wait, and a restart is left."""

from dataclasses import replace

import pytest

from trainer.node.ending.rank_lives import Life
from trainer.node.hang import end_stuck_rank
from trainer.node.hang.stuck_ranks import Stuck


class Clock:
    """A clock that the test moves, with a look every two seconds."""

    def __init__(self, monkeypatch, ender):
        self.now, self.ender = 100.0, ender
        monkeypatch.setattr(end_stuck_rank.time, "monotonic", lambda: self.now)

    def ended(self, seconds, standing, lives=None):
        """Return the ranks that are ended within this many seconds."""
        for _ in range(int(seconds / 2)):
            self.now += 2.0
            ranks = standing(self.now) if callable(standing) else standing
            if found := self.ender.look(lives or [each.life for each in ranks], ranks):
                return [each.life.rank for each in found]
        return []


def life(rank, attempt=0):
    return Life(rank=rank, local_rank=rank, attempt=attempt, world=2, pid=1000 + rank, began=1.0)


def standing(rank, doing, asleep=True, steps=30, wakes=0, attempt=0):
    return Stuck(life(rank, attempt), {"doing": doing}, asleep, steps, wakes)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch, end_stuck_rank.StuckRankEnder(restarts=1))


WAITS = standing(0, "backward")


@pytest.mark.parametrize("doing", ["script", "lock", "data", "stopped", "locked"])
def test_a_rank_that_sleeps_while_another_waits_for_it_is_ended(clock, doing):
    assert clock.ended(20, [WAITS, standing(1, doing)]) == []
    assert clock.ended(20, [WAITS, standing(1, doing)]) == [1]


@pytest.mark.parametrize(
    "rank",
    [
        standing(1, "script", asleep=False),
        standing(1, "computes", asleep=False),
        standing(1, "collective"),
        standing(1, "script", steps=0),
        standing(1, "script", attempt=1),
    ],
    ids=["it computes", "an endless loop", "it waits for others", "before its first step", "no restart is left"],
)
def test_no_other_rank_is_ended(clock, rank):
    assert clock.ended(300, [WAITS, rank]) == []


def test_a_rank_that_wakes_every_few_seconds_is_not_ended(clock):
    assert clock.ended(300, lambda now: [WAITS, standing(1, "script", wakes=int(now / 10))]) == []


@pytest.mark.parametrize(("doing", "every_s", "ends"), [("script", 25, True), ("data", 5, True), ("data", 1, False)])
def test_a_rank_may_wake_once_and_one_that_waits_for_its_workers_as_often_as_it_looks_at_them(
    clock, doing, every_s, ends
):
    """torch looks every five seconds whether a DataLoader's workers live."""
    found = clock.ended(40, lambda now: [WAITS, standing(1, doing, wakes=int((now - 100) / every_s))])
    assert found == ([1] if ends else [])


def test_a_rank_is_not_ended_while_another_of_its_node_moves(clock):
    assert clock.ended(300, [standing(1, "script")], lives=[life(0), life(1)]) == []


@pytest.mark.parametrize("doing", ["script", "stopped"])
def test_a_rank_that_nobody_waits_for_is_not_ended(clock, doing):
    assert clock.ended(300, [standing(0, "script"), standing(1, doing)]) == []


def test_a_pause_that_ends_counts_for_nothing_later(clock):
    assert clock.ended(28, [WAITS, standing(1, "script")]) == []
    assert clock.ended(2, [], lives=[life(0), life(1)]) == []
    assert clock.ended(28, [WAITS, standing(1, "script")]) == []


def test_with_several_nodes_a_rank_is_ended_only_once_all_nodes_report_being_stuck(monkeypatch):
    others = Group()
    clock = Clock(monkeypatch, end_stuck_rank.StuckRankEnder(1, others))
    alone = [standing(1, "script")]
    assert clock.ended(300, alone) == [], "nobody has said what the other node's ranks do"
    assert others.ranks_state == end_stuck_rank.ASLEEP, "the other node must learn it"
    others.others = end_stuck_rank.ASLEEP
    assert clock.ended(300, alone) == [], "nobody waits"
    others.others = end_stuck_rank.WAITING
    assert clock.ended(40, alone) == [1]
    for lives in ([life(1)], [replace(life(1), code=0)]):
        others.ranks_state = ""
        assert clock.ended(2, [], lives) == []
        assert others.ranks_state == end_stuck_rank.MOVING, "a rank that computes, or that has ended, is not asleep"


@pytest.mark.parametrize("part", [end_stuck_rank.MOVING, "", "anything"])
def test_a_node_that_moves_or_reports_something_odd_means_no_hang(part):
    assert end_stuck_rank.state_together([end_stuck_rank.ASLEEP, end_stuck_rank.WAITING]) == end_stuck_rank.WAITING
    assert end_stuck_rank.state_together([end_stuck_rank.ASLEEP, end_stuck_rank.WAITING, part]) == end_stuck_rank.MOVING


class Group:
    """Plays the other nodes: reports the state that the test sets for them, and keeps what this node reports."""

    def __init__(self, others=end_stuck_rank.MOVING, may_begin_again=True):
        self.ranks_state, self.others, self.may_begin_again = "", others, may_begin_again

    def others_state(self):
        return self.others


def grouped(monkeypatch, group):
    return Clock(monkeypatch, end_stuck_rank.StuckRankEnder(1, group, counts=True))


def test_if_nodes_continue_without_each_other_a_stopped_rank_is_ended_sooner(monkeypatch):
    clock = grouped(monkeypatch, Group())
    assert clock.ended(300, [WAITS, standing(1, "stopped", asleep=False)]) == [], "a debugger holds it"
    assert clock.ended(12, [WAITS, standing(1, "stopped")]) == [1]


def test_if_nodes_continue_without_each_other_a_locked_rank_is_ended_once_all_are_stuck(monkeypatch):
    group, alone = Group(), [standing(1, "lock")]
    clock = grouped(monkeypatch, group)
    assert clock.ended(300, alone) == []
    assert group.ranks_state == end_stuck_rank.ASLEEP, "the others must learn it"
    group.others = end_stuck_rank.ASLEEP
    assert clock.ended(300, alone) == [], "nobody waits"
    group.others = end_stuck_rank.WAITING
    assert clock.ended(20, alone) == []
    assert clock.ended(20, alone) == [1]


def test_if_nodes_continue_without_each_other_no_rank_is_ended_without_a_restart_left(monkeypatch):
    clock = grouped(monkeypatch, Group(end_stuck_rank.WAITING, may_begin_again=False))
    assert clock.ended(300, [standing(1, "lock"), standing(0, "stopped")]) == []
