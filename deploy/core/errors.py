"""Faults that a user can fix, with their hint and exit code. Anything else is a bug and shows its traceback."""

from __future__ import annotations

# Exit codes of our commands and of a run's nodes. docs/contract.md has them, muster/errors.py those that a node has.
DONE, FAILED, USAGE, REFUSED, STOPPED = 0, 1, 2, 3, 75
# A command was left by Ctrl-C, and the run goes on.
DETACHED = 130
# A node that ended with one of these is not started again.
FINAL = (DONE, USAGE, STOPPED)
# A shell and an engine add a signal's number to this.
SIGNALLED = 128
# Those of trainer/node/handover.py: the secrets are taken; no node waits for them.
TAKEN, NOBODY_WAITS = 0, 3


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


class BadAnswer(DeployError):
    """An answer of a host, or a file of a container, that cannot be read: `what` field it is, what came instead."""

    def __init__(self, what: str, expected: str, got: object, hint: str = "") -> None:
        super().__init__(f"{what}: expected {expected}, got {_shortened(got)}", hint)


def _shortened(got: object, most: int = 60) -> str:
    """A value in a few words. Control characters show as escapes; a list or an object shows only its kind."""
    if isinstance(got, str):
        more = f"... ({len(got)} letters)" if len(got) > most else ""
        return repr(got[:most]) + more
    if got is None or isinstance(got, float):
        return repr(got) if got is not None else "nothing"
    if isinstance(got, int):
        return repr(got) if abs(got) < 10**most else "a number of too many digits"
    return {"dict": "an object", "list": "a list"}.get(type(got).__name__, f"a {type(got).__name__}")
