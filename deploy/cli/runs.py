"""Commands for a run on real hosts that goes on or has ended: attach, stop, fetch; and `down` there."""

from __future__ import annotations

from ..core.errors import DETACHED, DONE, FAILED, STOPPED
from ..core.program import FAB
from ..hosts import attach as hosts_attach
from ..hosts import delete as hosts_delete
from ..hosts import fetch as hosts_fetch
from ..hosts import recorded
from ..hosts import stop as hosts_stop
from ..job.load import load_cluster
from ..job.options import Options
from ..local import one_file
from ..report.console import Console
from ..run import folders
from ..slurm import runs as slurm_runs
from . import slurm as on_slurm
from .command import command


@command(
    example=f"{FAB} attach --hosts gpu-a,gpu-b",
    codes={
        DONE: "the run is done",
        FAILED: "the run failed, or a host did",
        STOPPED: f"stopped on request ({FAB} stop); Muster's own trainer has written a checkpoint",
        DETACHED: "Ctrl-C left the run, which continues",
    },
)
def attach(options: Options, console: Console) -> int:
    """Follow a run to its end, and show what it prints.

    Ctrl-C leaves the run, which continues. If nodes wait for their
    secrets, attach hands them in again. If the run has
    ended, attach shows how, and exits with the run's own code.
    """
    if known := on_slurm.of_run(options.hosts, options.cluster, options.run):
        return slurm_runs.attach(known, options.rank, console)
    return hosts_attach.attach(recorded.filled(options, console), console)


@command(
    example=f"{FAB} stop --hosts gpu-a,gpu-b",
    codes={DONE: "the run has ended, whatever its end"},
)
def stop(options: Options, console: Console) -> int:
    """Stop a run with a checkpoint, and say how it ended. Ctrl-C kills it."""
    if known := on_slurm.of_run(options.hosts, options.cluster, options.run):
        return slurm_runs.stop(known, options.now, console)
    return hosts_stop.stop(recorded.to_stop(options, console), options.now, console)


@command(
    example=f"{FAB} fetch --hosts gpu-a,gpu-b",
    codes={
        DONE: "the run's folder is here, from every host",
        FAILED: "a host failed: the error names it; what the other hosts sent is here",
    },
)
def fetch(options: Options, console: Console) -> int:
    """Copy what a run wrote to this machine, and build its report.

    It does not copy again what is here already.
    """
    if options.state:
        one_file.refuse(options.state)
    if known := on_slurm.of_run(options.hosts, options.cluster, options.run):
        folder = slurm_runs.fetch(known, options.only, console)
    else:
        asked = recorded.filled(options, console)
        folder = hosts_fetch.fetch(load_cluster(asked), asked.run, options.only, console)
    console.line(folders.display_path(folder), {"kind": "fetched", "run": folder.name, "folder": str(folder)})
    return one_file.gather(folder, options.state, console.note) if options.state else DONE


def down_hosts(options: Options, console: Console) -> int:
    """`fab down --hosts`: remove the containers of all runs from these hosts; with --delete, a run and its files."""
    return hosts_delete.delete(options, console) if options.delete else hosts_attach.down(options, console)
