"""How every fab task ends: its exit code, an expected fault told in two lines."""

from __future__ import annotations

from collections.abc import Callable

from ..core.errors import STOPPED, DeployError
from ..report.console import Report


def code_of(report: Report, work: Callable[[], int]) -> int:
    """Do the work; its exit code, or that of its fault: 0 done, 1 failed, 2 wrong usage, 75 stopped."""
    try:
        return work()
    except DeployError as fault:
        report.error(fault)
        return fault.code
    except KeyboardInterrupt as stop:
        said = str(stop) or "stopped"
        report.warn(said)
        report.data({"kind": "stopped", "message": said})
        return STOPPED
