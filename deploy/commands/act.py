"""Commands for a run that is running or has ended: attach, stop, fetch, down, leave, join."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DETACHED, DONE, FAILED, STOPPED, USAGE
from ..job.option_words import command_of
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
        DETACHED: "you detached with Ctrl-C: the run continues",
    },
)
def attach(options: Options, console: Console) -> int:
    """Follow a run to its end, and show what it prints.

    Ctrl-C detaches; the run continues. If nodes wait for their secrets,
    attach provides them again. If the run has ended, attach shows its
    verdict, and exits with the run's own code.
    """
    from ..hosts.look import attach as hosts_attach
    from ..local import attach as local_attach
    from ..slurm import runs as slurm_runs
    from . import where

    match where.run_of(options, console):
        case Path() as run_dir:
            return local_attach.attach(run_dir, options.rank, console)
        case Options() as asked:
            return hosts_attach.attach(asked, console)
        case known:
            return slurm_runs.attach(known, options.rank, console)


@command(
    example=command_of("stop", hosts="gpu-a,gpu-b"),
    codes={DONE: "the run has ended, whatever its verdict"},
)
def stop(options: Options, console: Console) -> int:
    """Stop a run gracefully, with time to save, and say how it ended. Ctrl-C kills."""
    from ..hosts.act import stop as hosts_stop
    from ..local import attach as local_attach
    from ..slurm import runs as slurm_runs
    from . import where

    match where.to_stop(options, console):
        case Path() as run_dir:
            return local_attach.stop(run_dir, options.now, console)
        case Options() as asked:
            return hosts_stop.stop(asked, options.now, console)
        case known:
            return slurm_runs.stop(known, options.now, console)


@command(
    example=command_of("fetch", hosts="gpu-a,gpu-b"),
    codes={
        DONE: "the run's folder is here, from every host",
        FAILED: "a host failed: the error names it; what the other hosts sent is here",
    },
)
def fetch(options: Options, console: Console) -> int:
    """Copy what a run wrote to this machine, and build its report.

    It skips what is here already.
    """
    from ..hosts.look import fetch as hosts_fetch
    from ..local import attach as local_attach
    from ..local import one_file
    from ..run.files import folders
    from ..slurm import runs as slurm_runs
    from . import where

    if options.state:
        one_file.refuse(options.state)
    match where.run_of(options, console):
        case Path() as run_dir:
            folder = local_attach.fetch(run_dir, console)
        case Options() as asked:
            folder = hosts_fetch.fetch(asked, console)
        case known:
            folder = slurm_runs.fetch(known, options.only, console)
    console.line(folders.display_path(folder), {"kind": "fetched", "run": folder.name, "folder": str(folder)})
    return one_file.gather(folder, options.state, console.note) if options.state else DONE


@command(
    example=(
        "muster down",
        command_of("down", hosts="gpu-a,gpu-b"),
        command_of("down", hosts="gpu-a", run="ID", delete=True),
    ),
    codes={
        DONE: "no process of the runs is running any more",
        USAGE: f"nothing was changed: with {FLAG.delete}, the run has not ended yet",
    },
)
def down(options: Options, console: Console) -> int:
    """Stop every run of this folder here, or your runs on hosts, and clean up.

    The files that runs wrote stay, unless you give --delete.
    """
    from ..hosts.act import delete as hosts_delete
    from ..hosts.act import down as hosts_down
    from ..local import attach as local_attach
    from ..local import delete as local_delete
    from ..run.files import folders
    from . import where

    named = options.hosts or options.cluster
    if options.delete:  # --delete only uses hosts that the user types
        if known := where.on_slurm(options):
            where.refuse_slurm(known, f"once it has ended, its copy here: rm -r {folders.display_path(known.run_dir)}")
        return hosts_delete.delete(options, console) if named else local_delete.delete(options.run, console)
    # Without --run, the command applies to this machine or to the typed hosts.
    asked = where.run_not_on_slurm(options, console) if options.run or named else None
    if isinstance(asked, Options):
        return hosts_down.down(asked, console)
    return local_attach.stop_all(console, asked.name if asked else "")


@command(
    example=command_of("leave", hosts="gpu-b", run="ID"),
    codes={
        DONE: "the hosts have left: their nodes have ended, and the others continue",
        FAILED: "a host or its node did not answer: the error names it",
        USAGE: "a host must stay, because too few would be left: it keeps training; the hosts that you named "
        "before it have left",
        STOPPED: "stopped by Ctrl-C: a node that was already asked to leave still leaves",
    },
)
def leave(options: Options, console: Console) -> int:
    """Take hosts out of a run with --min-nodes; the others keep training.

    The others agree immediately, and continue from the newest checkpoint;
    a spare takes the free place. The host's GPUs are then free, its files
    stay, and it does not come back by itself.
    """
    from ..hosts.act import members
    from . import where

    members.refuse_unnamed(options, "leave")
    return members.leave(where.with_recorded_hosts(options, console), console)


@command(
    example=command_of("join", hosts="gpu-b", run="ID"),
    codes={
        DONE: "the nodes have started, and train or wait as spares",
        FAILED: "a host did not answer, or its node gets nothing from the others: the error names it",
        USAGE: "a host cannot join: nothing was changed there; the hosts that you named before it have joined",
        STOPPED: "stopped by Ctrl-C: a node that has already started still joins",
    },
)
def join(options: Options, console: Console) -> int:
    """Bring hosts back into a run with --min-nodes; the others keep training.

    A host that left the run, or whose node was lost, takes a free place
    after the next checkpoint; if no place is free, it waits as a spare.
    """
    from ..hosts.act import members
    from . import where

    members.refuse_unnamed(options, "join")
    return members.join(where.with_recorded_hosts(options, console), console)
