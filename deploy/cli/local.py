"""Commands for this machine: up, down, runs, report. cli/deploy.py and cli/runs.py have those for real hosts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from fabric import Connection
from invoke.exceptions import Exit

from ..config.script import once_a_node
from ..core.errors import DONE, FAILED, STOPPED, USAGE, UsageError
from ..core.names import asked_run
from ..core.program import FAB
from ..hosts import recorded
from ..hosts.options import Options
from ..local import delete as local_delete
from ..local import up as launch
from ..report.console import Console
from ..report.page import run as page
from ..run import folders, record
from . import exit, look, renamed
from . import runs as deploy_tasks
from .command import (
    ALLOW,
    EACH,
    ENV_FILE,
    GPUS,
    INCLUDE,
    KEEP,
    LIMIT,
    MAX_HOURS,
    MIN_NODES,
    NO_CACHE,
    NPROC,
    ON_END,
    REQUIREMENTS,
    RESTARTS,
    SECRET,
    SECRET_FILE,
    SEPARATE,
    SHOWN,
    STYLE,
    UNWATCHED,
    command,
    split,
)


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
    help={
        "script": 'your script and its arguments, as you type it: "train.py --lr 3e-4", "torchrun ...", "bash run.sh" '
        "(default: in Muster's checkout its own trainer, which --args asks for elsewhere)",
        "each": EACH,
        "style": STYLE,
        "folder": "the folder that holds your script (default: this folder with --script)",
        "run": "the run's id (default: date, time and the script's name)",
        "workers": "nodes beside the master (default: 0 with --script, else 2; with --resume, as many as before)",
        "backend": "auto, docker or processes (default: auto: processes for a script where there are GPUs, docker "
        "where an engine answers)",
        "resume": "continue a run: latest (the newest of this script), a run's id or folder, or a checkpoint (default: "
        "start a new run)",
        "args": 'options of the trainer, in one string: --args="--recipe text --steps 100" (default: none)',
        "keep": KEEP,
        "include": INCLUDE,
        "folder-limit": LIMIT,
        "secret": SECRET,
        "env-file": ENV_FILE,
        "secret-file": f"{SECRET_FILE}; only in containers",
        "no-cache": NO_CACHE,
        "nproc": NPROC,
        "gpus": GPUS,
        "max-hours": MAX_HOURS,
        "on-end": ON_END,
        "min-nodes": MIN_NODES,
        "rank": SHOWN,
        "restarts": RESTARTS,
        "requirements": REQUIREMENTS,
        "no-observe": UNWATCHED,
        "separate": SEPARATE,
        "json": "write events and the result as JSON lines to standard output",
        **ALLOW,
        "ground": "refused: --backend says where the nodes run",
    },
    hidden=("ground",),
    iterable=["keep", "include", "secret", "env_file", "secret_file"],
)
def up(
    context: Connection,
    workers: str = "",
    backend: str = "",
    resume: str = "",
    args: str = "",
    script: str = "",
    folder: str = "",
    run: str = "",
    keep: Sequence[str] | None = None,
    nproc: str = "",
    gpus: str = "",
    max_hours: str = "",
    on_end: str = "",
    min_nodes: str = "",
    rank: str = "",
    restarts: str = "",
    requirements: str = "",
    no_observe: bool = False,
    separate: bool = False,
    include: Sequence[str] | None = None,
    folder_limit: str = "",
    secret: Sequence[str] | None = None,
    env_file: Sequence[str] | None = None,
    secret_file: Sequence[str] | None = None,
    no_cache: bool = False,
    json: bool = False,
    each: str = "",
    style: str = "",
    ground: str = "",
) -> None:
    """Train on this machine: your script, or Muster's own trainer.

    In containers if a Docker engine answers, otherwise as plain processes.
    """
    console = Console(json)

    def work() -> int:
        renamed.refuse_ground(sys.argv[1:], ground)
        command = once_a_node(each, script)
        asked = launch.Options(workers, backend, resume, args, command, folder, run, rank, no_observe, restarts)
        asked = replace(asked, include=split(include), folder_limit=folder_limit, requirements=requirements)
        asked = replace(asked, max_hours=max_hours, on_end=on_end, style=style, min_nodes=min_nodes)
        asked = replace(asked, separate=separate, secrets=tuple(secret or ()), env_files=tuple(env_file or ()))
        asked = replace(asked, secret_files=tuple(secret_file or ()), no_cache=no_cache)
        return launch.up(replace(asked, keep=tuple(keep or ()), processes=nproc, gpus=gpus), console)

    _end(console, work)


@command(
    example=(f"{FAB} down", f"{FAB} down --hosts gpu-a,gpu-b", f"{FAB} down --hosts gpu-a --run ID --delete"),
    codes={
        DONE: "nothing of the runs is left running",
        USAGE: "nothing was changed: with --delete, the run still runs",
    },
    help={
        "hosts": "clean up these hosts: user@a:port,b (default: this machine; with --run, those of its record here; "
        "--delete takes none by itself)",
        "cluster": "clean up the hosts of this cluster.toml (default: this machine)",
        **ALLOW,
        "run": "this run only (default: all of yours)",
        "delete": "with --run: also remove all that this run wrote there; it must have ended",
        "json": "write one JSON object a host; without --hosts, of what was deleted",
    },
)
def down(
    context: Connection, hosts: str = "", cluster: str = "", run: str = "", delete: bool = False, json: bool = False
) -> None:
    """Stop every run of this checkout, or on some hosts, and clean up.

    What runs wrote stays, unless --delete is given.
    """
    console = Console(json)

    def work() -> int:
        if delete and not run:
            raise UsageError("--delete: no run is named; nothing was deleted", f"{FAB} down ... --run ID --delete")
        # Without --run it is about this machine, and what --delete removes must be named.
        options = recorded.or_here(Options(hosts, cluster, run), console) if run and not delete else None
        options = options or Options(hosts, cluster, run)
        if options.hosts or options.cluster:
            return deploy_tasks.down_hosts(options.hosts, options.cluster, options.run, delete, console)
        if delete:
            local_delete.delete(run, console)
        else:
            launch.stop_all(console, asked_run("--run", run))
        return DONE

    _end(console, work)


@command(
    example=(f"{FAB} runs", f"{FAB} runs --hosts gpu-a,gpu-b"),
    codes={DONE: "listed", FAILED: "a host did not answer; the others are shown"},
    help={
        "hosts": "list the runs on these hosts instead: user@a:port,b (default: this checkout's)",
        "cluster": "list the runs on the hosts of this cluster.toml (default: this checkout's)",
        **ALLOW,
        "json": "write one JSON object a run",
    },
)
def runs(context: Connection, hosts: str = "", cluster: str = "", json: bool = False) -> None:
    """List the runs of this checkout, or those on some hosts, newest last."""
    console = Console(json)

    def work() -> int:
        if hosts or cluster:
            return look.runs_on_hosts(hosts, cluster, console)
        launch.list_all(console)
        return DONE

    _end(console, work)


@command(
    example=f"{FAB} report --run latest",
    codes={DONE: "the page is written; its path is on standard output"},
    help={"run": "latest, an id or a path (default: latest)"},
)
def report(context: Connection, run: str = "latest") -> None:
    """Build report.html of a run again."""
    console = Console()

    def work() -> int:
        path = page.write(record.find(folders.RUNS, run))
        console.line(folders.display_path(path))
        return DONE

    _end(console, work)


def _end(console: Console, work: Callable[[], int]) -> None:
    raise Exit(code=exit.code_of(console, work))
