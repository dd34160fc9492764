"""What a rank prints goes into the pipe of its place on the node, and beside it stands whose words those are now."""

import fcntl
import os

import pytest

from trainer.node.launch import rank_pipe


@pytest.fixture
def pipe(tmp_path):
    """The pipe of the second rank of a node, as the agent reads it."""
    descriptor = rank_pipe.make(tmp_path, 1)
    yield descriptor
    os.close(descriptor)


def variables(folder, **more):
    given = {"MUSTER_OUTCOME_DIR": str(folder), "LOCAL_RANK": "1", "RANK": "5", rank_pipe.LIFE: "5-0-17"}
    return {name: value for name, value in {**given, **more}.items() if value is not None}


def test_a_rank_that_starts_gets_the_pipe_of_its_place_and_is_named_before_it_speaks(tmp_path, pipe):
    path = rank_pipe.claim(variables(tmp_path))
    assert rank_pipe.label(tmp_path, 1).read_text() == "5 5-0-17"
    with path.open("wb") as rank:
        rank.write(b"step 1\n")
    assert rank_pipe.waiting(pipe) == 7
    assert os.read(pipe, 100) == b"step 1\n"
    with pytest.raises(BlockingIOError):  # no end, though who wrote is gone: the next one may come
        os.read(pipe, 100)
    assert rank_pipe.waiting(pipe) == 0


def test_the_next_life_of_the_place_has_another_name(tmp_path, pipe):
    for life in ("5-0-17", "2-1-99"):
        rank_pipe.claim(variables(tmp_path, RANK=life[0], **{rank_pipe.LIFE: life}))
    assert rank_pipe.label(tmp_path, 1).read_text() == "2 2-1-99"


@pytest.mark.parametrize(
    "change",
    [
        {"LOCAL_RANK": "0"},
        {"LOCAL_RANK": "x"},
        {"LOCAL_RANK": None},
        {"RANK": "../5"},
        {"RANK": None},
        {"MUSTER_OUTCOME_DIR": None},
        {"MUSTER_OUTCOME_DIR": ""},
    ],
)
def test_a_rank_without_a_place_prints_where_torchrun_does(tmp_path, pipe, change):
    assert rank_pipe.claim(variables(tmp_path, **change)) is None
    assert not list(tmp_path.glob("*.writer"))


def test_a_file_in_the_place_of_the_pipe_gets_nothing(tmp_path, pipe):
    path = rank_pipe.claim(variables(tmp_path))
    path.unlink()
    path.touch()
    assert rank_pipe.claim(variables(tmp_path)) is None


@pytest.mark.skipif(not hasattr(fcntl, "F_GETPIPE_SZ"), reason="Linux has it")
def test_a_rank_may_print_a_megabyte_before_it_waits(pipe):
    assert fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) == 1 << 20


def test_each_start_of_a_rank_is_a_life_of_its_own():
    given = {"RANK": "3", "TORCHELASTIC_RESTART_COUNT": "2"}
    first, second = rank_pipe.new_life(given), rank_pipe.new_life(given)
    assert first != second
    assert [life.rpartition("-")[0] for life in (first, second, rank_pipe.new_life({}))] == ["3-2", "3-2", "-0"]
