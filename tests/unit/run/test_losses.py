"""A script's loss that is not a finite number: one warning, with the first such step that was read."""

from __future__ import annotations

import math

from deploy.run.progress import State


def state_of(*losses: float, script: bool = True) -> State:
    state = State(("gpu-a", "gpu-b"), script=script)
    state.apply({"t": 0.0, "kind": "began", "rank": 0, "node": "gpu-a"})
    for place, loss in enumerate(losses):
        state.apply({"t": float(place), "kind": "metrics", "step": 10 * place, "loss": loss})
    return state


def test_a_loss_that_stays_nan_is_reported_once_with_its_first_step() -> None:
    state = state_of(1.0, 0.5, math.nan, math.nan, math.nan, math.inf)
    assert [(line.text, line.grave) for line in state.story] == [
        ("gpu-a (rank 0): the loss is nan since step 20", True)
    ]


def test_a_single_nan_that_the_script_may_have_skipped_is_not_reported() -> None:
    assert not state_of(1.0, math.nan, 0.5, math.inf, 0.4).story


def test_a_nan_in_musters_own_trainer_is_not_reported_since_it_ends_the_run() -> None:
    assert not state_of(math.nan, math.nan, script=False).story


def test_a_rank_without_a_known_node_is_named_by_its_number() -> None:
    state = State((), script=True)
    for step in (1, 2):
        state.apply({"t": 0.0, "kind": "metrics", "step": step, "loss": -math.inf})
    assert state.story[0].text == "rank 0: the loss is -inf since step 1"
