"""Steps of a run are rounds of its optimizers; an evaluation's batches are nothing that training waits for."""

import pytest

from trainer.watch.steps import Done, Steps, between


@pytest.mark.parametrize(
    ("optimizers", "count"),
    [("aaaa", 4), ("ababab", 3), ("dddddgdddddg", 10), ("abcabc", 2), ("aaabbb", 5)],
)
def test_the_optimizer_that_steps_most_counts(optimizers, count):
    steps = Steps()
    told = [steps.stepped(ord(one)) for one in optimizers]
    assert (steps.count, sum(told), steps.all) == (count, count, len(optimizers))


def test_batches_count_once_a_step_follows_and_an_evaluations_do_not():
    steps = Steps()
    steps.fetched(1, 0.0)
    waited = steps.begun and steps._iterators[1][2]
    steps.stepped(7)
    assert steps.data == pytest.approx(waited)
    steps.fetched(2, 0.0)
    steps.exhausted(2)
    steps.stepped(7)
    assert steps.data == pytest.approx(waited)
    assert steps.away > 0


def test_the_last_batches_of_an_epoch_count_though_its_loader_has_ended():
    steps = Steps()
    steps.stepped(7)
    steps.fetched(1, 0.0)
    steps.stepped(7)
    before = steps.data
    steps.fetched(1, 0.0)
    steps.exhausted(1)
    assert steps.data > before


def done(step, clock, data=0.0, backward=0.0, wait=0.0, waits=0, away=0.0):
    return Done(step, clock, data, backward, wait, waits, away)


def test_where_a_steps_time_went_adds_up_to_it():
    found = between(done(10, 5.0), done(20, 6.0, data=0.2, backward=0.5, wait=0.03, waits=3, away=0.5), None)
    assert found == {"data_ms": 20.0, "compute_ms": 20.0, "wait_ms": 10.0, "backward_ms": 50.0, "step_ms": 50.0}


def test_waiting_that_is_not_known_is_left_out():
    found = between(done(0, 0.0), done(2, 1.0), None)
    assert "wait_ms" not in found
    assert found["compute_ms"] == 500.0
