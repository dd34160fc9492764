"""A rank prints into the pipe of its place on the node, which torchrun's process has inherited."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.node.launch import rank_pipe

HOME = Path(__file__).resolve().parents[5]
# It gives the second pipe to its second rank, and no pipe to another program that it starts.
TORCHRUN = """
import os, subprocess, sys
from trainer.node.launch import rank_pipe
_, second = rank_pipe.take_pipes(os.environ)
assert rank_pipe.PIPES not in os.environ
subprocess.run([sys.executable, "-c", "print('step 1')"], stdout=second, check=True)
held = "import os; print([name for name in os.listdir('/proc/self/fd') if int(name) > 2])"
print(subprocess.run([sys.executable, "-c", held], capture_output=True, text=True, close_fds=False).stdout.count("'"))
"""


@pytest.fixture
def pipes():
    """The pipes of two ranks: for each, the end that the agent reads and the end that the rank writes to."""
    made = [rank_pipe.make(), rank_pipe.make()]
    yield made
    for each in (descriptor for both in made for descriptor in both):
        os.close(each)


def test_a_rank_prints_into_the_pipe_of_its_place_and_no_other_program_inherits_it(pipes):
    writing = [each for _, each in pipes]
    given = {**os.environ, **rank_pipe.pipe_variables(writing)}
    line = [sys.executable, "-c", TORCHRUN]
    done = subprocess.run(line, env=given, pass_fds=writing, cwd=HOME, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2", "the folder that is listed has a descriptor, and nothing else"
    (first, _), (second, _) = pipes
    assert [rank_pipe.is_unread(each) for each in (first, second)] == [False, True]
    assert os.read(second, 100) == b"step 1\n"
    with pytest.raises(BlockingIOError):  # no end of file although the writer is gone: the next one may come
        os.read(second, 100)


def test_a_process_that_has_inherited_no_pipes_has_none():
    for given in ({}, rank_pipe.pipe_variables([])):
        assert rank_pipe.take_pipes(given) == []


def test_a_ranks_pipe_blocks_even_if_the_life_before_made_it_non_blocking(pipes):
    """asyncio makes its output non-blocking: a print of the rank's next life would fail on a full pipe."""
    writing = [each for _, each in pipes]
    os.set_blocking(writing[1], False)
    assert rank_pipe.pipe_of_rank(writing, 1) == writing[1]
    assert os.get_blocking(writing[1])
    assert rank_pipe.pipe_of_rank(writing, 2) is None, "it prints where torchrun does"


@pytest.mark.skipif(not hasattr(fcntl, "F_GETPIPE_SZ"), reason="Linux has it")
def test_a_rank_may_print_a_megabyte_before_it_waits(pipes):
    assert fcntl.fcntl(pipes[0][0], fcntl.F_GETPIPE_SZ) == 1 << 20
