"""What was done to a host and by whom: a line in ~/.muster/audit.log on that host, for those who share it."""

from __future__ import annotations

import getpass
import socket
import time
from contextlib import suppress

from deploy.errors import DeployError
from deploy.session import Session

_APPEND = 'umask 077; mkdir -p "$HOME/.muster" && cat >> "$HOME/.muster/audit.log"'


def note(session: Session, text: str) -> None:
    """Append `time user@control text` on the host; `text` is what was done, with the run's id where there is one.

    A line that cannot be written (a full disk, a cut connection) must not undo what it tells of: nothing is raised.
    """
    user, control = who()
    line = " ".join(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {user}@{control} {text}".split())
    with suppress(DeployError):
        session.run(["sh", "-c", _APPEND], input=f"{line}\n".encode())


def who() -> tuple[str, str]:
    """The user here, and this machine's name."""
    return getpass.getuser(), socket.gethostname()
