"""Faults that a user can fix, with their hint and exit code. Anything else is a bug and shows its traceback."""

from __future__ import annotations

import errno

from .text import shortened

# The exit codes of our commands and of a run's nodes: contract.md. muster/errors.py has those of a node.
DONE, FAILED, USAGE, REFUSED, STOPPED = 0, 1, 2, 3, 75
# Ctrl-C ended the command, and the run continues.
DETACHED = 130
# No backend restarts a node that ended with one of these.
FINAL = (DONE, USAGE, STOPPED)
# `timeout`'s own: the command was still running. `docker run`'s own: it started no container.
TIMED_OUT, NO_CONTAINER = 124, 125
# A shell's and an engine's for a program that cannot be run, and for one that is not there.
NOT_EXECUTABLE, NOT_FOUND = 126, 127
# A shell and an engine add a signal's number to this.
SIGNALLED = 128
# Of trainer/node/agent/handover.py: the node took its secrets; no node waits for secrets.
TAKEN, NOBODY_WAITS = 0, 3
_MOST = 60  # letters, or digits, of a value that is shown
# What the system says where a file can grow no more.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What it says where no program of this user gets further.
_OF_SYSTEM = (
    *(*FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE),
    *(errno.ENAMETOOLONG, errno.ELOOP),
)


class DeployError(Exception):
    """An expected fault: `message` says where, what, and what it got; `hint` is the next command.

    `code` is the exit code of the command.
    """

    def __init__(self, message: str, hint: str = "", code: int = FAILED) -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code

    @property
    def brief(self) -> str:
        """The message without what was being done, for one who knows that."""
        return self.message


class UsageError(DeployError):
    """Wrong usage: nothing has started."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, USAGE)


class Refused(DeployError):
    """Preflight found a fault that would keep the run from starting: nothing has started."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, REFUSED)


class EngineLost(DeployError):
    """The Docker engine stopped answering during a run."""


def of_system(fault: OSError, place: str = "this machine") -> DeployError | None:
    """What a machine refuses to any program, as a fault for its user; None for what may be a bug.

    `place`: where it was, if the fault names no file.
    """
    if fault.errno not in _OF_SYSTEM:
        return None
    what = f"{shortened(str(fault.filename or place), 200)}: {fault.strerror}"
    return DeployError(what, "free some space: df -h" if fault.errno in FULL else "")


class BadAnswer(DeployError):
    """An unreadable answer of a host, or file of a container: the field `what`, and what it was."""

    def __init__(self, what: str, expected: str, got: object, hint: str = "") -> None:
        super().__init__(f"{what}: expected {expected}, got {_shortened(got)}", hint)


def _shortened(got: object) -> str:
    """A value in a few words. Control characters show as escapes; a list or an object shows only its kind."""
    if isinstance(got, str):
        more = f"... ({len(got)} characters)" if len(got) > _MOST else ""
        return repr(got[:_MOST]) + more
    if got is None or isinstance(got, float):
        return repr(got) if got is not None else "nothing"
    if isinstance(got, int):
        return repr(got) if abs(got) < 10**_MOST else "a number of too many digits"
    return "an object" if isinstance(got, dict) else f"a {type(got).__name__}"
