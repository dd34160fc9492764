"""The door to hosts that the other packages use: by_paramiko.py, or with MUSTER_DOOR=ssh the new one, door/."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING or os.environ.get("MUSTER_DOOR") == "ssh":
    from ..door.session import (
        CommandFailed,
        Done,
        HostKey,
        Session,
        SshFault,
        add_keys,
        on_all,
        open_all,
        scan_keys,
        trust,
    )
else:
    from .by_paramiko import (
        CommandFailed,
        Done,
        HostKey,
        Session,
        SshFault,
        add_keys,
        on_all,
        open_all,
        scan_keys,
        trust,
    )

__all__ = [
    "CommandFailed",
    "Done",
    "HostKey",
    "Session",
    "SshFault",
    "add_keys",
    "on_all",
    "open_all",
    "scan_keys",
    "trust",
]
