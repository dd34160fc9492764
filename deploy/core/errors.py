"""Errors that a user can fix, each with a hint and an exit code. Any other exception is a bug and shows a traceback."""

from __future__ import annotations

import errno

from .text import shortened

# The exit codes of Muster's commands and of a run's nodes: contract.md. muster/errors.py has the codes of a node.
DONE, FAILED, USAGE, REFUSED, STOPPED = 0, 1, 2, 3, 75
# Ctrl-C ended the command, and the run continues.
DETACHED = 130
# No backend restarts a node that ended with one of these codes.
FINAL = (DONE, USAGE, STOPPED)
# 124: `timeout` ended a command that was still running. 125: `docker run` started no container.
TIMED_OUT, NO_CONTAINER = 124, 125
# What a shell or an engine returns for a program that cannot be executed, and for a program that does not exist.
NOT_EXECUTABLE, NOT_FOUND = 126, 127
# If a signal killed the program, a shell or an engine returns this plus the signal's number.
SIGNALLED = 128
# Exit codes of trainer/node/agent/handover.py: the node took its secrets; no node waits for secrets.
TAKEN, NO_RECEIVER = 0, 3
_MOST = 60  # characters, or digits, of a value that an error shows
# What the kernel reports when a file cannot grow any more.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors that the kernel would report to any program of this user here, not only to Muster.
_SYSTEM_ERRNOS = (
    *(*FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE),
    *(errno.ENAMETOOLONG, errno.ELOOP),
)


class DeployError(Exception):
    """An expected error: `message` says where it is, what is wrong, and the value found; `hint` is the next command.

    `code` is the command's exit code.
    """

    def __init__(self, message: str, hint: str = "", code: int = FAILED) -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code

    @property
    def brief(self) -> str:
        """The message without the part that says what was being done, for a caller that says it already."""
        return self.message


class UsageError(DeployError):
    """Wrong usage: nothing was started."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, USAGE)


class Refused(DeployError):
    """Preflight found a fault that would keep the run from starting: nothing was started."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, REFUSED)


class CommandEnded(DeployError):
    """A command ended that should have gone on; `ended` has its exit code (-1: not known) and its last words."""

    def __init__(self, what: str, code: int | None, last_words: str) -> None:
        self.ended = -1 if code is None else code, last_words
        super().__init__(f"{what} ended with code {self.ended[0]}: {last_words}")


class EngineLost(DeployError):
    """The Docker engine stopped answering during a run."""


def from_os_error(fault: OSError, place: str = "this machine") -> DeployError | None:
    """An OSError that any program would get on this machine, as an error for the user; None for what may be a bug.

    `place`: where it happened, for a fault without a file name.
    """
    if fault.errno not in _SYSTEM_ERRNOS:
        return None
    what = f"{shortened(str(fault.filename or place), 200)}: {fault.strerror}"
    return DeployError(what, "free some space: df -h" if fault.errno in FULL else "")


class BadAnswer(DeployError):
    """A host's answer or a container's file is not readable: `what` names the field, `got` is the value found there."""

    def __init__(self, what: str, expected: str, got: object, hint: str = "") -> None:
        super().__init__(f"{what}: expected {expected}, got {_shortened(got)}", hint)


def _shortened(got: object) -> str:
    """A value in a few words. Control characters become escapes; for a list or an object, only its kind is shown."""
    if isinstance(got, str):
        more = f"... ({len(got)} characters)" if len(got) > _MOST else ""
        return repr(got[:_MOST]) + more
    if got is None or isinstance(got, float):
        return repr(got) if got is not None else "nothing"
    if isinstance(got, int):
        return repr(got) if abs(got) < 10**_MOST else "a number of too many digits"
    return "an object" if isinstance(got, dict) else f"a {type(got).__name__}"
