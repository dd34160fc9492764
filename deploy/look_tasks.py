"""The fab tasks that look at real hosts and change nothing there."""

from __future__ import annotations

import json as jsons

from fabric import Connection, task

from deploy import deploy_home, deploy_look
from deploy.deploy_options import Options
from deploy.deploy_tasks import JSON, RUN, WHERE, end
from deploy.errors import DONE
from deploy.report import Report


@task(help={**WHERE, **JSON, "run": "one run only"})  # type: ignore[untyped-decorator]
def status(context: Connection, hosts: str = "", cluster: str = "", run: str = "", json: bool = False) -> None:
    """What runs on each host: state, step, rate, GPUs, last line."""
    report = Report(json)
    end(context, report, lambda: deploy_look.status(Options(hosts, cluster).load(), run, report))


@task(help={**WHERE, **JSON})  # type: ignore[untyped-decorator]
def gpus(context: Connection, hosts: str = "", cluster: str = "", json: bool = False) -> None:
    """Who holds which GPU on each host: memory, process, user, container."""
    report = Report(json)
    end(context, report, lambda: deploy_look.gpus(Options(hosts, cluster).load(), report))


@task(
    help={
        **RUN,
        **JSON,
        "rank": "one rank's own log, whole",
        "since": "only what is newer: 10m, or a time as 2026-11-21T03:00:00Z",
    }
)  # type: ignore[untyped-decorator]
def logs(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    rank: str = "",
    since: str = "",
    json: bool = False,
) -> None:
    """What a run's consoles said so far, in the order of time."""

    def work() -> int:
        for line in deploy_home.logs(Options(hosts, cluster).load(), run, rank, since):
            print(jsons.dumps({"line": line}) if json else line)
        return DONE

    end(context, Report(json), work)
