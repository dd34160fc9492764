"""A host's audit log, ~/.muster/audit.log: one line for each action; `Action` lists everything written to it."""

from __future__ import annotations

import os
import pwd
import socket
import time
from contextlib import suppress
from enum import StrEnum

from ..core.errors import DeployError
from ..core.printable import one_line
from ..door.session import Session
from .commands import script


class Action(StrEnum):
    """An action that changes a host, as the log words it: `run` is the run, `what` the thing."""

    STARTED = "{run} started {what}"
    SIGNALLED = "{run} {what}"
    LEFT = "{run} left by {what}"
    JOINED = "{run} joined by {what}"
    REMOVED = "{run}: removed {what}"
    DELETED = "{run}: deleted {what}"
    PUSHED = "pushed {what}"
    INSTALLED = "installed {what}"
    MADE = "made the environment {what}"
    CLEANED = "cleaned {what}"
    UNLOCKED = "removed the lock of {what}"
    BOOTSTRAP = "bootstrap: {what}"
    BOOTSTRAP_FAILED = "bootstrap failed: {what}"


def note(session: Session, action: Action, what: str, run: str = "") -> None:
    """Append `time user from address: action (user@control)` on the host.

    The host itself adds who logged in; the user's name on this machine follows, unproved. Raises nothing: a line that
    cannot be written (a full disk, a cut connection) must not undo the action that it reports.
    """
    user, control = user_and_machine()
    text = action.value.format(what=what, run=run)
    line = " ".join(one_line(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text} ({user}@{control})").split())
    with suppress(DeployError):
        session.run(script("audit"), input=f"{line}\n".encode())


def user_and_machine() -> tuple[str, str]:
    """The user of this process, and this machine's name. Environment variables cannot change them."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name, socket.gethostname()
    except KeyError:
        return f"uid {os.getuid()}", socket.gethostname()
