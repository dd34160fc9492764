"""The fab tasks that look at real hosts and change nothing there."""

from __future__ import annotations

from fabric import Connection, task

from ..hosts import logs as deploy_logs
from ..hosts import status as deploy_look
from ..hosts.logs import Choice
from ..hosts.options import Options
from ..report.console import Console
from .runs import JSON, RUN, WHERE, end


@task(help={**WHERE, **JSON, "run": "one run only"})  # type: ignore[untyped-decorator]
def status(context: Connection, hosts: str = "", cluster: str = "", run: str = "", json: bool = False) -> None:
    """What runs on each host: state, step, rate, GPUs, last line."""
    console = Console(json)
    end(context, console, lambda: deploy_look.status(Options(hosts, cluster).load(), run, console))


@task(help={**WHERE, **JSON})  # type: ignore[untyped-decorator]
def gpus(context: Connection, hosts: str = "", cluster: str = "", json: bool = False) -> None:
    """Who holds which GPU on each host: memory, process, user, container."""
    console = Console(json)
    end(context, console, lambda: deploy_look.gpus(Options(hosts, cluster).load(), console))


@task(
    help={
        **RUN,
        **JSON,
        "rank": "one rank's lines: of its own log where it has one",
        "follow": "go on until the run ends, or Ctrl-C",
        "since": "only what is newer: 10m, or a time as 2026-11-21T03:00:00Z",
    }
)  # type: ignore[untyped-decorator]
def logs(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    rank: str = "",
    follow: bool = False,
    since: str = "",
    json: bool = False,
) -> None:
    """What a run's nodes say, in the order of time, host and rank in front."""
    console = Console(json)
    choice = Choice(run, rank, since, follow)
    end(context, console, lambda: deploy_logs.logs(Options(hosts, cluster).load(), choice, console))


def runs_there(hosts: str, cluster: str, console: Console) -> int:
    """`fab runs --hosts`: the runs that lie on hosts."""
    return deploy_look.runs(Options(hosts, cluster).load(), console)
