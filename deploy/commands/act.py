"""Commands for a run that goes on or has ended: attach, stop, fetch, down, leave, join."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import DETACHED, DONE, FAILED, STOPPED, USAGE
from ..job.again import command_of
from ..job.load import read_run
from ..job.options import FLAG, Options
from .command import command

if TYPE_CHECKING:
    from ..report.console import Console


@command(
    example=command_of("attach", hosts="gpu-a,gpu-b"),
    codes={
        DONE: "the run is done",
        FAILED: "the run failed, or a host did",
        STOPPED: "stopped on request (muster stop); Muster's own trainer has written a checkpoint",
        DETACHED: "Ctrl-C left the run, which continues",
    },
)
def attach(options: Options, console: Console) -> int:
    """Follow a run to its end, and show what it prints.

    Ctrl-C leaves the run, which continues. If nodes wait for their
    secrets, attach provides them again. If the run has
    ended, attach shows how, and exits with the run's own code.
    """
    from ..hosts import recorded
    from ..hosts.look import attach as hosts_attach
    from ..local import attach as local_attach
    from ..slurm import runs as slurm_runs
    from . import slurm as on_slurm

    if run_dir := recorded.here(options):
        return local_attach.attach(run_dir, options.rank, console)
    if known := on_slurm.of_run(options):
        return slurm_runs.attach(known, options.rank, console)
    return hosts_attach.attach(recorded.filled(options, console), console)


@command(
    example=command_of("stop", hosts="gpu-a,gpu-b"),
    codes={DONE: "the run has ended, however it ended"},
)
def stop(options: Options, console: Console) -> int:
    """Stop a run gracefully, with time to save, and say how it ended. Ctrl-C kills."""
    from ..hosts import recorded
    from ..hosts.act import stop as hosts_stop
    from ..local import attach as local_attach
    from ..slurm import runs as slurm_runs
    from . import slurm as on_slurm

    is_here = recorded.here(options)
    if not is_here and (known := on_slurm.of_run(options)):
        return slurm_runs.stop(known, options.now, console)
    asked = options if is_here and options.run else recorded.to_stop(options, console, local_attach.going_on)
    if run_dir := recorded.here(asked):
        return local_attach.stop(run_dir, options.now, console)
    return hosts_stop.stop(asked, options.now, console)


@command(
    example=command_of("fetch", hosts="gpu-a,gpu-b"),
    codes={
        DONE: "the run's folder is here, from every host",
        FAILED: "a host failed: the error names it; what the other hosts sent is here",
    },
)
def fetch(options: Options, console: Console) -> int:
    """Copy what a run wrote to this machine, and build its report.

    It does not copy again what is here already.
    """
    from ..hosts import recorded
    from ..hosts.look import fetch as hosts_fetch
    from ..local import attach as local_attach
    from ..local import one_file
    from ..run.files import folders
    from ..slurm import runs as slurm_runs
    from . import slurm as on_slurm

    if options.state:
        one_file.refuse(options.state)
    if run_dir := recorded.here(options):
        folder = local_attach.fetch(run_dir, console)
    elif known := on_slurm.of_run(options):
        folder = slurm_runs.fetch(known, options.only, console)
    else:
        folder = hosts_fetch.fetch(recorded.filled(options, console), console)
    console.line(folders.display_path(folder), {"kind": "fetched", "run": folder.name, "folder": str(folder)})
    return one_file.gather(folder, options.state, console.note) if options.state else DONE


@command(
    example=(
        "muster down",
        command_of("down", hosts="gpu-a,gpu-b"),
        command_of("down", hosts="gpu-a", run="ID", delete=True),
    ),
    codes={
        DONE: "no process of the runs is left",
        USAGE: f"nothing was changed: with {FLAG.delete}, the run still runs",
    },
)
def down(options: Options, console: Console) -> int:
    """Stop every run of this folder, or on some hosts, and clean up.

    What runs wrote stays, unless --delete is given.
    """
    from ..hosts import recorded
    from ..hosts.act import delete as hosts_delete
    from ..hosts.look import attach as hosts_attach
    from ..local import attach as local_attach
    from ..local import delete as local_delete

    # Without --run it is about this machine, and what --delete removes must be named.
    is_here = not options.run or options.delete or recorded.here(options)
    asked = options if is_here else recorded.filled(options, console)
    if not is_here or asked.hosts or asked.cluster:
        return hosts_delete.delete(asked, console) if asked.delete else hosts_attach.down(asked, console)
    if options.delete:
        local_delete.delete(options.run, console)
    else:
        local_attach.stop_all(console, read_run(options.run))
    return DONE


@command(
    example=command_of("leave", hosts="gpu-b", run="ID"),
    codes={
        DONE: "the hosts have left: their nodes have ended, and the others continue",
        FAILED: "a host did not answer, or its node did not: the error names it",
        USAGE: "a host must stay, because too few would be left: it continues; the hosts named before it have left",
        STOPPED: "Ctrl-C: a node that was already asked still leaves",
    },
)
def leave(options: Options, console: Console) -> int:
    """Take hosts out of a run with --min-nodes; the others keep training.

    The others agree at once, and continue from the newest checkpoint;
    a spare takes its place. The host's GPUs are free then, its files
    stay, and it does not come back by itself.
    """
    from ..hosts import recorded
    from ..hosts.act import members

    members.refuse_unnamed(options, "leave")
    return members.leave(recorded.filled(options, console), console)


@command(
    example=command_of("join", hosts="gpu-b", run="ID"),
    codes={
        DONE: "the nodes have started, and take part or wait as spares",
        FAILED: "a host did not answer, or its node does not hear from the others: the error names it",
        USAGE: "a host cannot join: nothing was changed there; the hosts named before it have joined",
        STOPPED: "Ctrl-C: a node that has already started still joins",
    },
)
def join(options: Options, console: Console) -> int:
    """Bring hosts back into a run with --min-nodes; the others keep training.

    A host that has left it, or whose node was lost, takes a free place
    after the next checkpoint; where none is free, it waits as a spare.
    """
    from ..hosts import recorded
    from ..hosts.act import members

    members.refuse_unnamed(options, "join")
    return members.join(recorded.filled(options, console), console)
