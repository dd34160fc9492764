"""The audit log of a host: who did what, a line each in ~/.muster/audit.log; each command calls `note` itself."""

from __future__ import annotations

import os
import pwd
import socket
import time
from contextlib import suppress

from ..core.errors import DeployError
from ..core.printable import one_line
from ..door.session import Session
from .commands import script


def note(session: Session, text: str) -> None:
    """Append `time user from address: text (user@control)` on the host; `text` says what was done to which run.

    The host itself says who logged in; the user's name on this machine follows as a claim. Raises nothing: a line that
    cannot be written (a full disk, a cut connection) must not undo the action that it reports.
    """
    user, control = who()
    line = " ".join(one_line(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text} ({user}@{control})").split())
    with suppress(DeployError):
        session.run(script("audit"), input=f"{line}\n".encode())


def who() -> tuple[str, str]:
    """The user of this process, and this machine's name. Environment variables have no say in it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name, socket.gethostname()
    except KeyError:
        return f"uid {os.getuid()}", socket.gethostname()
