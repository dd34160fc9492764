"""Commands that read from real hosts and change nothing: status, gpus, logs."""

from __future__ import annotations

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
from .command import command


@command(
    example=f"{FAB} status --hosts gpu-a,gpu-b",
    codes={DONE: "every host answered", FAILED: "a host did not answer; the others are shown"},
)
def status(options: Options, console: Console) -> int:
    """Show what runs on each host: state, step, rate, GPUs, last line."""
    if known := on_slurm.of_run(options.hosts, options.cluster, options.run):
        return slurm_runs.status(known, console)
    asked = recorded.filled(options, console)
    return deploy_look.status(load_cluster(asked), asked.run if options.run else "", console)


@command(
    example=f"{FAB} gpus --hosts gpu-a,gpu-b",
    codes={
        DONE: "every host answered; with --watch, you ended the command by Ctrl-C",
        FAILED: "a host did not answer, or its driver did not; the others are shown",
        STOPPED: "Ctrl-C before the hosts had answered, without --watch",
    },
)
def gpus(options: Options, console: Console) -> int:
    """Show who holds which GPU on each host: memory, process, user, container."""
    show = deploy_look.watch_gpus if options.watch else deploy_look.gpus
    return show(load_cluster(options), console)


@command(
    example=f"{FAB} logs --hosts gpu-a,gpu-b --follow",
    codes={
        DONE: "all lines are printed; with --follow, the run has ended, or you ended the command by Ctrl-C",
        FAILED: "a host did not answer, or was lost on the way",
        STOPPED: "Ctrl-C before all lines were printed, without --follow",
    },
)
def logs(options: Options, console: Console) -> int:
    """Print what a run's nodes wrote, in the order of time, with host and rank.

    Without hosts: what the ranks of a run on this machine wrote.
    """
    if known := on_slurm.of_run(options.hosts, options.cluster, options.run):
        return slurm_runs.logs(known, options.rank, options.follow, options.since, options.grep, console)
    # If somebody followed a run to its end, what it printed is on this machine.
    asked = options if recorded.ended_here(options, options.rank) else recorded.or_here(options, console)
    if recorded.names_hosts(asked):
        choice = Choice(asked.run, options.rank, options.since, options.follow, options.grep)
        return deploy_logs.logs(load_cluster(asked), choice, console)
    if options.since:
        raise UsageError(f"--since {options.since}: the logs of this machine have no times", "leave it out")
    return local_within.logs_here(options.run, options.rank, options.follow, options.grep, console)


@command(
    example=(f"{FAB} why --hosts gpu-a,gpu-b", f"{FAB} why"),
    codes={DONE: "every node answered", FAILED: "a host did not answer; the others are shown"},
)
def why(options: Options, console: Console) -> int:
    """Show what each rank of a script does at this moment, and who is missing.

    It does not disturb the run.
    """
    asked = recorded.or_here(options, console)
    if asked.hosts or asked.cluster:
        return deploy_why.why_on_hosts(load_cluster(asked), asked.run, options.stacks, console)
    return deploy_why.why_here(options.run, options.stacks, console)


def runs_on_hosts(options: Options, console: Console) -> int:
    """`fab runs --hosts`: the runs on hosts."""
    return deploy_look.runs(load_cluster(options), console)
