"""What was done to a host and by whom: a line in ~/.muster/audit.log on that host, for those who share it."""

from __future__ import annotations

import os
import pwd
import socket
import time
from contextlib import suppress

from ..core.errors import DeployError
from ..core.printable import one_line
from ..core.scripts import Scripts
from ..ssh.session import Session

_SCRIPT = Scripts(__file__)


def note(session: Session, text: str) -> None:
    """Append `time user from address: text (user@control)` on the host; `text` is what was done, to which run.

    The host says who logged in; what this machine calls its user stands behind, as a claim. A line that cannot be
    written (a full disk, a cut connection) must not undo what it tells of: nothing is raised.
    """
    user, control = who()
    line = " ".join(one_line(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text} ({user}@{control})").split())
    with suppress(DeployError):
        session.run(_SCRIPT("audit"), input=f"{line}\n".encode())


def who() -> tuple[str, str]:
    """The user this process runs as, and this machine's name. No variable of the environment is asked."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name, socket.gethostname()
    except KeyError:
        return f"uid {os.getuid()}", socket.gethostname()
