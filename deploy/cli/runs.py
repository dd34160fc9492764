"""Commands for a run on real hosts that goes on or has ended: attach, stop, fetch; and `down` there."""

from __future__ import annotations

from collections.abc import Sequence

from fabric import Connection

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
from .command import ALLOW, command
from .exit import end


@command(
    example=f"{FAB} attach --hosts gpu-a,gpu-b",
    codes={
        DONE: "the run is done",
        FAILED: "the run failed, or a host did",
        STOPPED: f"stopped on request ({FAB} stop); Muster's own trainer has written a checkpoint",
        DETACHED: "Ctrl-C left the run, which continues",
    },
    takes="attach",
    help=ALLOW,
)
def attach(context: Connection, options: Options) -> None:
    """Follow a run to its end, and show what it prints.

    Ctrl-C leaves the run, which continues. If nodes wait for their
    secrets, attach hands them in again. If the run has
    ended, attach shows how, and exits with the run's own code.
    """
    console = Console(options.json)

    def work() -> int:
        if known := on_slurm.of_run(options.hosts, options.cluster, options.run):
            return slurm_runs.attach(known, options.rank, console)
        return hosts_attach.attach(recorded.filled(options, console), console)

    end(context, console, work)


@command(
    example=f"{FAB} stop --hosts gpu-a,gpu-b",
    codes={DONE: "the run has ended, whatever its end"},
    takes="stop",
    help={"now": "kill it at once, without a checkpoint", **ALLOW},
)
def stop(context: Connection, options: Options, now: bool = False) -> None:
    """Stop a run with a checkpoint, and say how it ended. Ctrl-C kills it."""
    console = Console(options.json)

    def work() -> int:
        if known := on_slurm.of_run(options.hosts, options.cluster, options.run):
            return slurm_runs.stop(known, now, console)
        return hosts_stop.stop(recorded.to_stop(options, console), now, console)

    end(context, console, work)


@command(
    example=f"{FAB} fetch --hosts gpu-a,gpu-b",
    codes={
        DONE: "the run's folder is here, from every host",
        FAILED: "a host failed: the error names it; what the other hosts sent is here",
    },
    iterable=["only"],
    takes="fetch",
    help={
        "only": "copy only what matches: 'work/outputs/*'; repeatable (default: all but downloads and unchanged sent "
        "files)",
        "state": "afterwards join the newest checkpoint, whose parts several hosts have, into one file: state.pt, or "
        "model.safetensors for the weights alone (default: none)",
        **ALLOW,
    },
)
def fetch(context: Connection, options: Options, only: Sequence[str] | None = None, state: str = "") -> None:
    """Copy what a run wrote to this machine, and build its report.

    It does not copy again what is here already.
    """
    console = Console(options.json)

    def work() -> int:
        if state:
            one_file.refuse(state)
        if known := on_slurm.of_run(options.hosts, options.cluster, options.run):
            folder = slurm_runs.fetch(known, tuple(only or ()), console)
        else:
            asked = recorded.filled(options, console)
            folder = hosts_fetch.fetch(load_cluster(asked), asked.run, tuple(only or ()), console)
        console.line(folders.display_path(folder), {"kind": "fetched", "run": folder.name, "folder": str(folder)})
        return one_file.gather(folder, state, console.note) if state else DONE

    end(context, console, work)


def down_hosts(options: Options, delete: bool, console: Console) -> int:
    """`fab down --hosts`: remove the containers of all runs from these hosts; with `delete`, a run and its files."""
    return hosts_delete.delete(options, console) if delete else hosts_attach.down(options, console)
