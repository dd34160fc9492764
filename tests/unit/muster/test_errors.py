"""An error that a user can fix says how, also in a traceback, and has an exit code that callers rely on."""

import traceback

import pytest

from muster import errors
from muster.errors import CheckpointError, NewerFormat, Refused, TrainError


def test_an_error_shows_its_hint_in_a_report_and_in_a_traceback():
    fault = TrainError("disk full: /x", "free some")
    assert fault.report() == "error: disk full: /x\nhint: free some"
    assert traceback.format_exception_only(fault)[-1] == "hint: free some\n"
    assert str(fault) == "disk full: /x"


def test_an_error_without_a_hint_shows_none():
    fault = TrainError("rank 3 is gone")
    assert fault.report() == "error: rank 3 is gone"
    assert "hint" not in "".join(traceback.format_exception_only(fault))
    assert fault.hint == ""


def test_an_error_belongs_to_the_rank_that_raises_it_unless_it_names_another():
    assert TrainError("x").culprit is None
    assert TrainError("x", culprit=(3, "gpu-b")).culprit == (3, "gpu-b")


@pytest.mark.parametrize("kind", [Refused, CheckpointError, NewerFormat])
def test_a_refusal_has_exit_code_2_so_that_it_is_not_repeated(kind):
    fault = kind("no such file", "name one")
    assert isinstance(fault, TrainError)
    assert (fault.code, fault.message, fault.hint) == (2, "no such file", "name one")
    assert isinstance(fault, CheckpointError) == (kind is not Refused)


def test_exit_codes_keep_the_numbers_that_callers_know():
    assert (errors.DONE, errors.FAILED, errors.REFUSED, errors.STOPPED) == (0, 1, 2, 75)
    assert (errors.NOT_EXECUTABLE, errors.NOT_FOUND, errors.SIGNALLED) == (126, 127, 128)
    assert (errors.TAKEN, errors.NO_RECEIVER, errors.NOT_TAKEN) == (0, 3, 4)
    assert TrainError("x").code == errors.FAILED
