"""Faults a user can mend, with their hint and exit code. Anything else is a bug and shows its traceback."""

from __future__ import annotations

# Exit codes of a node. docs/contract.md has them; what the control side makes of them: deploy/core/errors.py.
DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 75
# A shell and an engine add a signal's number to this.
SIGNALLED = 128
# Those of trainer/node/handover.py; 1 is Python's own.
TAKEN, NOBODY_WAITS, NOT_TAKEN = 0, 3, 4


class TrainError(Exception):
    """An expected fault: says where, what and got; `hint` says what to do next; `code` is the exit code.

    `culprit` is (rank, node) where the fault is another rank's than the one that raises it.
    """

    def __init__(
        self, message: str, hint: str = "", code: int = FAILED, culprit: tuple[int, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.hint, self.code, self.culprit = message, hint, code, culprit

    def report(self) -> str:
        """The fault as a person reads it."""
        return f"error: {self.message}" + (f"\nhint: {self.hint}" if self.hint else "")


class Refused(TrainError):
    """Wrong usage or input: nothing was started, and a restart would change nothing."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, REFUSED)


class CheckpointError(Refused):
    """A checkpoint that cannot be used: unreadable, truncated, altered, or another run's."""


class NewerFormat(CheckpointError):
    """A checkpoint of a newer Muster: whole, so it is not passed over for an older one."""
