"""The end of every command: its exit code, and an expected fault as two lines (`error:`, `hint:`)."""

from __future__ import annotations

from collections.abc import Callable

from ..core.errors import STOPPED, DeployError
from ..report.console import Console


def code_of(console: Console, work: Callable[[], int]) -> int:
    """Do the work; its exit code, or that of its fault: 0 done, 1 failed, 2 wrong usage, 75 stopped."""
    try:
        return work()
    except DeployError as fault:
        console.error(fault)
        return fault.code
    except KeyboardInterrupt as stop:
        message = str(stop) or "stopped"
        console.warn(message)
        console.data({"kind": "stopped", "message": message})
        return STOPPED
