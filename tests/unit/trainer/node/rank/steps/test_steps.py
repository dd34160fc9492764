"""A run's steps are rounds of its optimizers; training does not wait for the batches of an evaluation."""

import pickle
from time import perf_counter

import pytest

from trainer.node.rank.steps.steps import Done, Steps, between


class Optimizer:
    """An optimizer of torch's whose steps are counted."""


@pytest.mark.parametrize(
    ("optimizers", "count"),
    [("aaaa", 4), ("ababab", 3), ("dddddgdddddg", 10), ("abcabc", 2), ("aaabbb", 5)],
)
def test_the_optimizer_that_steps_most_counts(optimizers, count):
    steps = Steps()
    of = {name: Optimizer() for name in optimizers}
    told = [steps.stepped(of[name]) for name in optimizers]
    assert (steps.count, sum(told), steps.all) == (count, count, len(optimizers))
    assert steps.several == (len(of) > 1)


def test_an_optimizer_that_replaces_one_that_is_gone_loses_no_step():
    steps, folds = Steps(), [Optimizer() for _ in range(3)]
    while folds:
        for _ in range(4):
            assert steps.stepped(folds[-1])
        folds.pop()
    assert (steps.count, steps.several) == (12, True)


def test_batches_count_once_a_step_follows_and_an_evaluations_do_not():
    steps, optimizer = Steps(), Optimizer()
    steps.fetched(1, 0.0)
    waited = steps.begun and steps._iterators[1][2]
    steps.stepped(optimizer)
    assert steps.data == pytest.approx(waited)
    steps.fetched(2, 0.0)
    steps.exhausted(2)
    steps.stepped(optimizer)
    assert steps.data == pytest.approx(waited)
    assert steps.away > 0


def test_the_last_batches_of_an_epoch_count_though_its_loader_has_ended():
    steps, optimizer = Steps(), Optimizer()
    steps.stepped(optimizer)
    steps.fetched(1, 0.0)
    steps.stepped(optimizer)
    before = steps.data
    steps.fetched(1, 0.0)
    steps.exhausted(1)
    assert steps.data > before


def test_two_loaders_that_take_turns_both_count():
    steps, optimizer = Steps(), Optimizer()
    steps.fetched(1, perf_counter() - 4.0)
    steps.fetched(2, perf_counter() - 8.0)
    steps.stepped(optimizer)
    assert steps.data == pytest.approx(12.0, abs=1.0)


def test_a_loader_whose_first_batch_nobody_saw_is_not_taken_for_an_evaluation():
    steps, optimizer = Steps(), Optimizer()
    for _ in range(3):
        steps.exhausted(7)
        steps.stepped(optimizer)
    assert (steps.away, steps.data) == (0.0, 0.0)


def test_loops_that_end_early_fill_no_memory():
    steps = Steps()
    for loop in range(10_000):
        steps.fetched(loop, perf_counter())
    assert len(pickle.dumps(steps._iterators)) < 10_000


def done(step, clock, data=0.0, backward=0.0, wait=0.0, waits=0, away=0.0):
    return Done(step, clock, data, backward, wait, waits, away)


def test_the_parts_of_a_steps_time_add_up_to_it():
    found = between(done(10, 5.0), done(20, 6.0, data=0.2, backward=0.5, wait=0.03, waits=3, away=0.5), None)
    assert found == {"data_ms": 20.0, "compute_ms": 20.0, "wait_ms": 10.0, "backward_ms": 50.0, "step_ms": 50.0}


def test_an_unknown_waiting_time_is_left_out():
    found = between(done(0, 0.0), done(2, 1.0), None)
    assert "wait_ms" not in found
    assert found["compute_ms"] == 500.0
