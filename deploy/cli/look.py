"""Commands that read from real hosts and change nothing: status, gpus, logs."""

from __future__ import annotations

from fabric import Connection

from ..core.errors import DONE, FAILED, STOPPED, UsageError
from ..core.program import FAB
from ..hosts import logs as deploy_logs
from ..hosts import recorded
from ..hosts import status as deploy_look
from ..hosts import why as deploy_why
from ..hosts.logs import Choice
from ..job.load import load_cluster
from ..job.options import Options
from ..local import within as local_within
from ..report.console import Console
from ..slurm import runs as slurm_runs
from . import slurm as on_slurm
from .command import ALLOW, HOSTS, JSON, RECORDED, command
from .exit import end, names_hosts


@command(
    example=f"{FAB} status --hosts gpu-a,gpu-b",
    codes={DONE: "every host answered", FAILED: "a host did not answer; the others are shown"},
    help={**RECORDED, **JSON, "run": "show this run only, or the latest (default: all runs)"},
)
def status(context: Connection, hosts: str = "", cluster: str = "", run: str = "", json: bool = False) -> None:
    """Show what runs on each host: state, step, rate, GPUs, last line."""
    console = Console(json)

    def work() -> int:
        if known := on_slurm.of_run(hosts, cluster, run):
            return slurm_runs.status(known, console)
        options = recorded.filled(Options(hosts, cluster, run), console)
        return deploy_look.status(load_cluster(options), options.run if run else "", console)

    end(context, console, work)


@command(
    example=f"{FAB} gpus --hosts gpu-a,gpu-b",
    codes={
        DONE: "every host answered; with --watch, you ended the command by Ctrl-C",
        FAILED: "a host did not answer, or its driver did not; the others are shown",
        STOPPED: "Ctrl-C before the hosts had answered, without --watch",
    },
    help={
        **HOSTS,
        **JSON,
        "watch": "show it again every 2 s until Ctrl-C; if the output is no terminal, a line for each change",
    },
)
def gpus(context: Connection, hosts: str = "", cluster: str = "", watch: bool = False, json: bool = False) -> None:
    """Show who holds which GPU on each host: memory, process, user, container."""
    console = Console(json)
    show = deploy_look.watch_gpus if watch else deploy_look.gpus
    end(context, console, lambda: show(load_cluster(Options(hosts, cluster)), console))


@command(
    example=f"{FAB} logs --hosts gpu-a,gpu-b --follow",
    codes={
        DONE: "all lines are printed; with --follow, the run has ended, or you ended the command by Ctrl-C",
        FAILED: "a host did not answer, or was lost on the way",
        STOPPED: "Ctrl-C before all lines were printed, without --follow",
    },
    help={
        **RECORDED,
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
    asked = Options(hosts, cluster, run)

    def work() -> int:
        if known := on_slurm.of_run(hosts, cluster, run):
            return slurm_runs.logs(known, rank, follow, since, grep, console)
        # If somebody followed a run to its end, what it printed is on this machine.
        options = asked if recorded.ended_here(asked, rank) else recorded.or_here(asked, console)
        if names_hosts(options.hosts, options.cluster):
            choice = Choice(options.run, rank, since, follow, grep)
            return deploy_logs.logs(load_cluster(options), choice, console)
        if since:
            raise UsageError(f"--since {since}: the logs of this machine have no times", "leave it out")
        return local_within.logs_here(run, rank, follow, grep, console)

    end(context, console, work)


@command(
    example=(f"{FAB} why --hosts gpu-a,gpu-b", f"{FAB} why"),
    codes={DONE: "every node answered", FAILED: "a host did not answer; the others are shown"},
    help={
        "hosts": "where the run is: user@a:port,b (default: what the run's record here says)",
        "cluster": "where the run is: a file like cluster.toml (default: this machine)",
        **ALLOW,
        "run": "the run's id, or latest (default: on named hosts the only run, else the latest)",
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
        options = recorded.or_here(Options(hosts, cluster, run), console)
        if options.hosts or options.cluster:
            return deploy_why.why_on_hosts(load_cluster(options), options.run, stacks, console)
        return deploy_why.why_here(run, stacks, console)

    end(context, console, work)


def runs_on_hosts(hosts: str, cluster: str, console: Console) -> int:
    """`fab runs --hosts`: the runs on hosts."""
    return deploy_look.runs(load_cluster(Options(hosts, cluster)), console)
