"""A run that cannot work is refused with a message that a plain torchrun lets through."""

import os
import subprocess
import sys

MESH = [sys.executable, "-m", "muster.trainer", "--mesh", "dp_shard=2,tp=2"]


def rank(number):
    """Start one rank of two, as torchrun starts it."""
    place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    return subprocess.Popen(MESH, env={**ours, **place}, stderr=subprocess.PIPE, text=True)


def test_a_rank_whose_number_is_no_number_is_refused_with_a_message():
    done = rank("one")
    words = done.communicate(timeout=60)[1]
    assert (done.returncode, words.splitlines()[0]) == (2, "error: RANK must be a whole number, got 'one'")


def test_a_rank_whose_number_is_far_too_long_is_refused_without_a_traceback():
    done = rank("1" * 5000)
    words = done.communicate(timeout=60)[1]
    assert done.returncode == 2
    assert "Traceback" not in words


def test_the_silent_rank_outlives_the_one_that_prints_the_message():
    second, first = rank("1"), rank("0")
    try:
        words = first.communicate(timeout=60)[1]
        assert (first.returncode, second.poll()) == (2, None)
        assert "--mesh dp_shard=2,tp=2: 4 ranks, but the run has 2" in words
    finally:
        second.kill()
        second.communicate()
