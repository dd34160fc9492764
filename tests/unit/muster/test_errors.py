"""A fault that a user can fix says so in words, in a traceback too, and has an exit code that others rely on."""

import traceback

import pytest

from muster import errors
from muster.errors import CheckpointError, NewerFormat, Refused, TrainError


def test_a_fault_is_told_with_what_to_do_wherever_it_is_shown():
    fault = TrainError("disk full: /x", "free some")
    assert fault.report() == "error: disk full: /x\nhint: free some"
    assert traceback.format_exception_only(fault)[-1] == "hint: free some\n"
    assert str(fault) == "disk full: /x"


def test_a_fault_that_has_no_remedy_shows_none():
    fault = TrainError("rank 3 is gone")
    assert fault.report() == "error: rank 3 is gone"
    assert "hint" not in "".join(traceback.format_exception_only(fault))
    assert fault.hint == ""


def test_a_fault_is_of_the_rank_that_raises_it_unless_it_names_another():
    assert TrainError("x").culprit is None
    assert TrainError("x", culprit=(3, "gpu-b")).culprit == (3, "gpu-b")


@pytest.mark.parametrize("kind", [Refused, CheckpointError, NewerFormat])
def test_what_is_refused_is_not_tried_again(kind):
    fault = kind("no such file", "name one")
    assert isinstance(fault, TrainError)
    assert (fault.code, fault.message, fault.hint) == (2, "no such file", "name one")
    assert isinstance(fault, CheckpointError) == (kind is not Refused)


def test_exit_codes_are_those_that_others_know():
    assert (errors.DONE, errors.FAILED, errors.REFUSED, errors.STOPPED) == (0, 1, 2, 75)
    assert (errors.NOT_EXECUTABLE, errors.NOT_FOUND, errors.SIGNALLED) == (126, 127, 128)
    assert (errors.TAKEN, errors.NOBODY_WAITS, errors.NOT_TAKEN) == (0, 3, 4)
    assert TrainError("x").code == errors.FAILED
