"""When a follower considers a host lost: by its answers over SSH and its node's files, not by its Docker engine."""

from __future__ import annotations

import time

import pytest

from deploy.host.logs import is_of_dead_engine
from deploy.hosts import backend
from deploy.run.lost_host import LIVES_S, Misses, Signs, is_lost
from deploy.run.progress import State

WELL = Signs(0.3, 0.3, 2.0)
# Its engine died a minute ago.
TRAINS_ON = Signs(0.3, 60.0, 2.0)
STANDS = Signs(0.3, 60.0, 58.0)
NO_POWER = Signs(15.0, 60.0, 16.0)
ONLY_SSH_FAILS = Signs(30.0, 30.0, 30.0)
ANOTHER_HAS_ENDED = Misses(no_step_s=20.0, other_ended=True, is_waited_for=False, has_reports=True)


@pytest.mark.parametrize(
    ("signs", "trouble", "silent_s"),
    [
        (WELL, "", 0.3),
        (Signs(0.3, 0.3, 300.0), "", 0.3),
        (TRAINS_ON, "", 0.3),
        (STANDS, "lifeless", 58.0),
        (NO_POWER, "unseen", 15.0),
        (Signs(117.0, 117.0, 117.0), "unseen", 117.0),
    ],
)
def test_silence_counts_from_the_last_sign_of_the_node_and_not_of_its_engine(signs, trouble, silent_s) -> None:
    assert (signs.trouble, signs.silent_s) == (trouble, silent_s)


def test_a_host_with_only_a_silent_engine_is_not_lost_even_if_another_node_ended() -> None:
    assert not is_lost(TRAINS_ON, [WELL], ANOTHER_HAS_ENDED, 600.0)
    assert is_lost(STANDS, [WELL], ANOTHER_HAS_ENDED, 600.0)
    assert is_lost(NO_POWER, [WELL], ANOTHER_HAS_ENDED, 600.0)


def test_while_the_ranks_train_no_host_is_lost() -> None:
    trains = Misses(no_step_s=0.4, other_ended=True, is_waited_for=False, has_reports=True)
    assert not is_lost(ONLY_SSH_FAILS, [WELL], trains, 600.0)
    assert is_lost(ONLY_SSH_FAILS, [WELL], ANOTHER_HAS_ENDED, 600.0)


def test_a_host_that_ranks_wait_for_is_lost_after_wait_lost_but_not_if_no_host_answers() -> None:
    waits = Misses(no_step_s=700.0, other_ended=False, is_waited_for=True, has_reports=True)
    assert not is_lost(ONLY_SSH_FAILS, [WELL], waits, 600.0)
    gone = Signs(601.0, 601.0, 601.0)
    assert is_lost(gone, [WELL, gone], waits, 600.0)
    assert not is_lost(gone, [gone], waits, 600.0)
    assert not is_lost(Signs(0.3, 900.0, 2.0), [WELL], waits, 600.0), "what they wait for is something else"


def test_the_message_about_an_engine_says_whether_the_rank_keeps_training() -> None:
    assert backend.engine_words(TRAINS_ON, 1).startswith(
        "the Docker engine there does not answer; rank 1 keeps training"
    )
    assert "its node keeps running" in backend.engine_words(TRAINS_ON, None)
    assert backend.engine_words(STANDS, 1) == "the Docker engine there does not answer; asking again"
    assert backend.engine_words(Signs(0.3, 5.0, LIVES_S + 1), 1) == backend.engine_words(STANDS, 1)


@pytest.mark.parametrize(
    "words",
    [
        "unexpected EOF",
        'error during connect: Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.45/containers/x/json": EOF',
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    ],
)
def test_dockers_message_about_a_dead_engine_is_not_shown_as_the_nodes_output(words) -> None:
    assert is_of_dead_engine(words)
    assert not is_of_dead_engine("Error response from daemon: configured logging driver does not support reading")


def test_a_rank_is_said_to_keep_training_only_after_a_step_without_its_engine() -> None:
    """An engine that shuts down stops its containers, whose files still grow while they end."""
    now, signs = time.time(), Signs(0.3, 5.0, 0.5)
    state = State(("a", "b"), script=True)
    for kind, t in (("began", now - 60), ("step", now - 9)):
        state.apply({"kind": kind, "t": t, "rank": 1, "node": "b", "step": 7, "attempt": 0, "world": 2, "pid": 1})
    assert backend._trains_since(state, "b", signs) is None
    assert "its node keeps running" in backend.engine_words(signs, None)
    state.apply({"kind": "step", "t": now - 1, "rank": 1, "node": "b", "step": 8})
    assert backend._trains_since(state, "b", signs) == 1
    state.apply({"kind": "verdict", "t": now, "verdict": "stopped", "node": "b", "rank": 1, "message": ""})
    assert backend._trains_since(state, "b", signs) is None
