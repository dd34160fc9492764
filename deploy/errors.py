"""Faults a user can mend, with their hint and exit code. Anything else is a bug and shows its traceback."""

from __future__ import annotations

DONE, FAILED, USAGE, REFUSED, STOPPED = 0, 1, 2, 3, 75


class DeployError(Exception):
    """An expected fault: `message` says where, what and got; `hint` the next command; `code` is fab's exit code."""

    def __init__(self, message: str, hint: str = "", code: int = FAILED) -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code


class UsageError(DeployError):
    """Wrong usage: nothing was started."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, USAGE)


class Refused(DeployError):
    """Preflight found what would keep the run from starting: nothing was started."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, REFUSED)


class EngineLost(DeployError):
    """The Docker engine stopped answering while a run stood on it."""
