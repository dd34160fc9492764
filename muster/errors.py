"""Faults that a user can fix, with a hint and an exit code. Any other exception is a bug and shows its traceback."""

from __future__ import annotations

# Exit codes of a node (contract.md). deploy/core/errors.py has the control side's exit codes.
DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 75
# The exit codes of a shell or an engine for a program that cannot be executed, and for one that does not exist.
NOT_EXECUTABLE, NOT_FOUND = 126, 127
# A shell or an engine adds a signal's number to this.
SIGNALLED = 128
# Exit codes of trainer/node/agent/handover.py; exit code 1 is Python's own.
TAKEN, NO_RECEIVER, NOT_TAKEN = 0, 3, 4


class TrainError(Exception):
    """An expected fault. The message says where, what and which value; `hint` says what to do; `code` is the exit code.

    `culprit` is (rank, node) if another rank has the fault than the one that raises this error.
    """

    def __init__(
        self, message: str, hint: str = "", code: int = FAILED, culprit: tuple[int, str] | None = None
    ) -> None:
        super().__init__(message)
        if hint:
            self.add_note(f"hint: {hint}")  # a traceback shows it below the message
        self.message, self.hint, self.code, self.culprit = message, hint, code, culprit

    def report(self) -> str:
        """The fault as text for a person."""
        return f"error: {self.message}" + (f"\nhint: {self.hint}" if self.hint else "")


class Refused(TrainError):
    """Wrong usage or input: nothing has started, and a restart would fail in the same way."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, REFUSED)


class CheckpointError(Refused):
    """A checkpoint that cannot be used: unreadable, truncated, altered, or from another run."""


class NewerFormat(CheckpointError):
    """A checkpoint written by a newer Muster. It is intact, so Muster does not use an older one instead."""
