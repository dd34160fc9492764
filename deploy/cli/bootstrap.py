"""`fab bootstrap`: the task; what is done is decided in bootstrap.py and done in hosts/bootstrap_run.py."""

from __future__ import annotations

import sys

from fabric import Connection, task

from ..core.errors import UsageError
from ..hosts import bootstrap_run
from ..hosts.options import Options
from ..report.console import Console
from .runs import JSON, WHERE, end


@task(help={**WHERE, **JSON, "yes": "do not ask", "dry-run": "print the commands, and do nothing"})  # type: ignore[untyped-decorator]
def bootstrap(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    yes: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Install Docker (NVIDIA's toolkit too, for a GPU) on Debian and Ubuntu."""
    console = Console(json)

    def work() -> int:
        if not yes and not dry_run and not sys.stdin.isatty():
            raise UsageError("there is nobody to ask whether to install", "--yes does without, --dry-run only shows")
        return bootstrap_run.run(Options(hosts, cluster).load().hosts, None if yes else console.ask, dry_run, console)

    end(context, console, work)
