"""Heartbeats of other hosts, by this host's clock: alive is who writes, whatever time it writes."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from trainer.node.launch.local_times import LocalTimes

OWN, OTHER = "own", "other"
HOUR = timedelta(hours=1)


def state_of(other, deadline=None):
    """What is read of torch's state, as another host, whose clock is an hour ahead or behind, has stored it."""
    return SimpleNamespace(last_heartbeats={OTHER: other}, deadline=deadline)


def age(state):
    """Seconds since the other host's heartbeat, by this host's clock."""
    return (datetime.now(UTC) - state.last_heartbeats[OTHER]).total_seconds()


@pytest.mark.parametrize("off", [HOUR, -HOUR])
def test_a_heartbeat_is_as_old_as_the_time_since_it_was_first_read(off):
    times, written = LocalTimes(1.0), datetime.now(UTC) + off
    times.read(first := state_of(written))
    assert 0 <= (young := age(first)) < HOUR.total_seconds() / 2
    times.read(again := state_of(written))
    assert young <= age(again) < HOUR.total_seconds() / 2
    times.read(beaten := state_of(written + timedelta(seconds=1)))
    assert again.last_heartbeats[OTHER] < beaten.last_heartbeats[OTHER] <= datetime.now(UTC)


def test_what_others_wrote_goes_back_as_they_wrote_it_and_own_times_as_they_are():
    times, written = LocalTimes(1.0), datetime.now(UTC) - HOUR
    state, own = state_of(written, written), datetime.now(UTC)
    times.read(state)
    state.last_heartbeats[OWN] = own
    times.write(state)
    assert state.last_heartbeats == {OTHER: written, OWN: own}
    assert state.deadline == written


def test_a_deadline_comes_after_the_time_that_a_last_call_takes():
    times, before, call = LocalTimes(2.0), datetime.now(UTC), timedelta(seconds=2)
    times.read(state := state_of(datetime.now(UTC), datetime.now(UTC) - HOUR))
    assert before + call <= state.deadline <= datetime.now(UTC) + call


def test_a_clock_that_somebody_sets_makes_no_heartbeat_old(monkeypatch):
    times, written = LocalTimes(1.0), datetime.now(UTC)
    times.read(state_of(written))

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + HOUR

    monkeypatch.setattr("trainer.node.launch.local_times.datetime", Later)
    times.read(state := state_of(written))
    assert (Later.now(UTC) - state.last_heartbeats[OTHER]).total_seconds() < HOUR.total_seconds() / 2
