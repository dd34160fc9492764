"""Commands for this machine: up, down, runs, report. cli/deploy.py and cli/runs.py have those for real hosts."""

from __future__ import annotations

from dataclasses import replace

from ..core.errors import DONE, FAILED, STOPPED, USAGE, UsageError
from ..core.program import FAB
from ..hosts import recorded
from ..job.load import read_run
from ..job.options import Options
from ..job.script import once_a_node
from ..local import delete as local_delete
from ..local import up as launch
from ..report.console import Console
from ..report.page import run as page
from ..run import folders, record
from . import look
from . import runs as deploy_tasks
from .command import command


@command(
    example=(
        f"{FAB} up -- train.py --epochs 2",
        f"{FAB} up --workers 1 -- torchrun --nproc-per-node 2 train.py",
        f'{FAB} up --args="--recipe text --data notes --steps 100"',
        f"{FAB} up --resume latest",
    ),
    codes={
        DONE: "the run is done",
        FAILED: "the run failed: the error names the rank",
        USAGE: "an option or the run's input was refused: nothing was started",
        STOPPED: "stopped by Ctrl-C, with a checkpoint",
    },
)
def up(options: Options, console: Console) -> int:
    """Train on this machine: your script, or Muster's own trainer.

    In containers if a Docker engine answers, otherwise as plain processes.
    """
    return launch.up(replace(options, script=once_a_node(options.each, options.script)), console)


@command(
    example=(f"{FAB} down", f"{FAB} down --hosts gpu-a,gpu-b", f"{FAB} down --hosts gpu-a --run ID --delete"),
    codes={
        DONE: "nothing of the runs is left running",
        USAGE: "nothing was changed: with --delete, the run still runs",
    },
)
def down(options: Options, console: Console) -> int:
    """Stop every run of this checkout, or on some hosts, and clean up.

    What runs wrote stays, unless --delete is given.
    """
    if options.delete and not options.run:
        raise UsageError("--delete: no run is named; nothing was deleted", f"{FAB} down ... --run ID --delete")
    # Without --run it is about this machine, and what --delete removes must be named.
    asked = recorded.or_here(options, console) if options.run and not options.delete else options
    if asked.hosts or asked.cluster:
        return deploy_tasks.down_hosts(asked, console)
    if options.delete:
        local_delete.delete(options.run, console)
    else:
        launch.stop_all(console, read_run(options.run))
    return DONE


@command(
    example=(f"{FAB} runs", f"{FAB} runs --hosts gpu-a,gpu-b"),
    codes={DONE: "listed", FAILED: "a host did not answer; the others are shown"},
)
def runs(options: Options, console: Console) -> int:
    """List the runs of this checkout, or those on some hosts, newest last."""
    if options.hosts or options.cluster:
        return look.runs_on_hosts(options, console)
    launch.list_all(console)
    return DONE


@command(
    example=f"{FAB} report --run latest",
    codes={DONE: "the page is written; its path is on standard output"},
)
def report(options: Options, console: Console) -> int:
    """Build report.html of a run again."""
    path = page.write(record.find(folders.RUNS, options.run or "latest"))
    console.line(folders.display_path(path))
    return DONE
