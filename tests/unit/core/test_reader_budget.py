"""The limits of a reader of others' text: time that grows with the bytes read, up to a maximum; and room for items."""

import pytest

from deploy.core import budget
from deploy.core.budget import Budget, is_shallow


@pytest.fixture
def clock(monkeypatch):
    """A fake wall clock, and one of this thread's CPU time; `asked` counts how often the second is read."""

    class Clock:
        wall = used = 0.0
        asked = 0

        def now(self):
            self.asked += 1
            return self.used

        def spend(self, seconds):
            self.wall += seconds
            self.used += seconds

    made = Clock()
    monkeypatch.setattr(budget.time, "monotonic", lambda: made.wall)
    return made


def test_a_reader_is_first_behind_and_then_out_of_time(clock):
    own = Budget(clock.now)
    clock.spend(0.3)
    assert not own.is_behind
    clock.spend(0.3)
    assert (own.is_behind, own.is_over) == (True, False)
    clock.spend(0.3)
    assert own.is_over


def test_more_bytes_give_more_time_up_to_twenty_seconds(clock):
    own = Budget(clock.now)
    own.add(1_000_000)
    clock.spend(1.2)
    assert not own.is_behind
    clock.spend(0.3)
    assert (own.is_behind, own.is_over) == (True, False)
    own.add(10_000_000_000)
    assert not own.is_behind
    clock.spend(14.0)
    assert (own.is_behind, own.is_over) == (True, False)
    clock.spend(2.0)
    assert own.is_over


def test_earlier_cpu_time_does_not_count_and_the_slow_clock_is_read_seldom(clock):
    clock.spend(30.0)
    own = Budget(clock.now)
    assert not own.is_over
    before = clock.asked
    for _ in range(1000):
        clock.spend(0.0001)
        assert not own.is_behind
    assert 5 <= clock.asked - before <= 20


def test_there_is_room_for_a_limited_number_of_items():
    own = Budget()
    assert own.keep(7_999)
    assert own.keep()
    assert not own.keep()


def test_depth_counts_nested_lists_and_objects():
    def nested(depth, kind):
        value = 1
        for _ in range(depth):
            value = [value] if kind is list else {"a": value}
        return value

    for kind in (list, dict):
        assert [is_shallow(nested(depth, kind), 3) for depth in (0, 3, 4)] == [True, True, False]
    assert is_shallow([[] for _ in range(1000)], 2)
