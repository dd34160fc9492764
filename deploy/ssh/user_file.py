"""The file of the user's SSH settings: how `ssh` is told of it, and the host that a name may mean."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from paramiko import SSHConfig, SSHException

from ..core.near import near

VARIABLE = "MUSTER_SSH_CONFIG"


def ssh() -> str:
    """`ssh` as a person types it to get the settings that Muster reads."""
    path = os.environ.get(VARIABLE)
    return f"ssh -F {shlex.quote(path)}" if path else "ssh"


def meant(host: str) -> str:
    """The host of these settings whose name is most like `host`; empty if none is, or if the file cannot be read."""
    file = Path(os.environ.get(VARIABLE) or "~/.ssh/config").expanduser()
    try:
        names = SSHConfig.from_path(str(file)).get_hostnames()
    except (OSError, ValueError, SSHException):
        return ""
    return near(host, [name for name in names if not set("*?!") & set(name) and name != host])
