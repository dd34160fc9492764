"""The end of every command: its exit code, and an expected fault as two lines (`error:`, `hint:`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fabric import Connection
from invoke.exceptions import Exit

from ..core.errors import STOPPED, DeployError, UsageError
from ..core.program import FAB
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


def end(context: Connection, console: Console, work: Callable[[], int]) -> None:
    """Do a task's work and end with its exit code. Raises invoke's Exit, always."""

    def once() -> int:
        # `fab --hosts a,b deploy` calls the task once for each host: N deploys where one was meant.
        if getattr(context, "host", None):
            raise UsageError("--hosts must follow the task's name", f"for example: {FAB} deploy --hosts a,b")
        return work()

    raise Exit(code=code_of(console, once))


def names_hosts(hosts: str, cluster: str) -> bool:
    """Whether a command is about hosts: it names some, or this folder has a cluster.toml. Else about this machine."""
    return bool(hosts or cluster or Path("cluster.toml").is_file())
