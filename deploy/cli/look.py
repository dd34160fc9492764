"""Commands that read from real hosts and change nothing: status, gpus, logs."""

from __future__ import annotations

from fabric import Connection

from ..core.errors import DONE, FAILED, UsageError
from ..core.program import FAB
from ..hosts import logs as deploy_logs
from ..hosts import status as deploy_look
from ..hosts import why as deploy_why
from ..hosts.logs import Choice
from ..hosts.options import Options
from ..local import within as local_within
from ..report.console import Console
from .command import HOSTS, JSON, RUN, command
from .runs import end, names_hosts


@command(
    example=f"{FAB} status --hosts gpu-a,gpu-b",
    codes={DONE: "every host answered", FAILED: "a host did not answer; the others are shown"},
    help={**HOSTS, **JSON, "run": "show this run only (default: all runs)"},
)
def status(context: Connection, hosts: str = "", cluster: str = "", run: str = "", json: bool = False) -> None:
    """Show what runs on each host: state, step, rate, GPUs, last line."""
    console = Console(json)
    end(context, console, lambda: deploy_look.status(Options(hosts, cluster).load(), run, console))


@command(
    example=f"{FAB} gpus --hosts gpu-a,gpu-b",
    codes={DONE: "every host answered", FAILED: "a host did not answer, or its driver did not; the others are shown"},
    help={
        **HOSTS,
        **JSON,
        "watch": "show it again every 2 s, until Ctrl-C; where nobody looks, a line for each change",
    },
)
def gpus(context: Connection, hosts: str = "", cluster: str = "", watch: bool = False, json: bool = False) -> None:
    """Show who holds which GPU on each host: memory, process, user, container."""
    console = Console(json)
    show = deploy_look.watch_gpus if watch else deploy_look.gpus
    end(context, console, lambda: show(Options(hosts, cluster).load(), console))


@command(
    example=f"{FAB} logs --hosts gpu-a,gpu-b --follow",
    codes={
        DONE: "all lines are printed; with --follow, the run has ended, or Ctrl-C",
        FAILED: "a host did not answer, or was lost on the way",
    },
    help={
        **RUN,
        **JSON,
        "rank": "only this rank's lines, from its own log if it has one (default: all ranks)",
        "follow": "continue until the run ends, or Ctrl-C",
        "grep": "only lines that this extended regular expression (grep -E) finds, on the hosts (default: all lines)",
        "since": "only newer lines: 10m, or a time such as 2026-11-21T03:00:00Z (default: all)",
    },
)
def logs(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    rank: str = "",
    follow: bool = False,
    since: str = "",
    grep: str = "",
    json: bool = False,
) -> None:
    """Print what a run's nodes wrote, in the order of time, with host and rank.

    Without hosts: what the ranks of a run on this machine wrote.
    """
    console = Console(json)
    choice = Choice(run, rank, since, follow, grep)

    def work() -> int:
        if names_hosts(hosts, cluster):
            return deploy_logs.logs(Options(hosts, cluster).load(), choice, console)
        if since:
            raise UsageError(f"--since {since}: the logs of this machine have no times", "leave it out")
        return local_within.logs_here(run, rank, follow, grep, console)

    end(context, console, work)


@command(
    example=(f"{FAB} why --hosts gpu-a,gpu-b", f"{FAB} why"),
    codes={DONE: "every node answered", FAILED: "a host did not answer; the others are shown"},
    help={
        "hosts": "where the run is: user@a:port,b (default: this machine)",
        "cluster": "where the run is: a file like cluster.toml (default: this machine)",
        "run": "the run's id (default: on hosts the only run, here the latest)",
        "stacks": "also print each rank's whole stack",
        **JSON,
    },
)
def why(
    context: Connection, hosts: str = "", cluster: str = "", run: str = "", stacks: bool = False, json: bool = False
) -> None:
    """Show what each rank of a script does at this moment, and who is missing.

    It does not disturb the run.
    """
    console = Console(json)

    def work() -> int:
        if hosts or cluster:
            return deploy_why.why_on_hosts(Options(hosts, cluster).load(), run, stacks, console)
        return deploy_why.why_here(run, stacks, console)

    end(context, console, work)


def runs_on_hosts(hosts: str, cluster: str, console: Console) -> int:
    """`fab runs --hosts`: the runs on hosts."""
    return deploy_look.runs(Options(hosts, cluster).load(), console)
