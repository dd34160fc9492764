"""The fab tasks of this machine; those for real hosts are in cli/runs.py."""

from __future__ import annotations

from collections.abc import Callable

from fabric import Connection, task
from invoke.exceptions import Exit

from ..core.errors import DONE
from ..local import up as launch
from ..report.console import Console
from ..report.page import run as page
from ..run import folders, record
from . import exit, look
from . import runs as deploy_tasks


@task(
    help={
        "workers": "nodes beside the master (default 2; when resuming, as many as before)",
        "ground": "auto, docker or processes",
        "resume": "latest, a run folder, or a checkpoint",
        "args": 'options of the trainer, in one string: --args="--recipe text --steps 100"',
        "json": "events and the result as JSON lines on standard output",
    }
)  # type: ignore[untyped-decorator]
def up(
    context: Connection, workers: str = "", ground: str = "", resume: str = "", args: str = "", json: bool = False
) -> None:
    """Train on this machine: one master node and some workers."""
    console = Console(json)
    _end(console, lambda: launch.up(launch.Options(workers, ground, resume, args), console))


@task(
    help={
        "hosts": "remove what runs left on these hosts instead: user@a:port,b",
        "cluster": "the same for the hosts of a cluster.toml",
        "run": "with hosts: one run only",
        "json": "with hosts: one JSON object a host",
    }
)  # type: ignore[untyped-decorator]
def down(context: Connection, hosts: str = "", cluster: str = "", run: str = "", json: bool = False) -> None:
    """Stop every run of this checkout, or all that runs on some hosts, and clean up after it."""
    console = Console(json)

    def work() -> int:
        if hosts or cluster:
            return deploy_tasks.down_hosts(hosts, cluster, run, console)
        launch.stop_all(console)
        return DONE

    _end(console, work)


@task(
    help={
        "hosts": "those that lie on these hosts instead: user@a:port,b",
        "cluster": "the same for the hosts of a cluster.toml",
        "json": "one JSON object a run",
    }
)  # type: ignore[untyped-decorator]
def runs(context: Connection, hosts: str = "", cluster: str = "", json: bool = False) -> None:
    """List the runs of this checkout, or those on some hosts, newest last."""
    console = Console(json)

    def work() -> int:
        if hosts or cluster:
            return look.runs_there(hosts, cluster, console)
        launch.list_all(console)
        return DONE

    _end(console, work)


@task(help={"run": "latest, an id or a path"})  # type: ignore[untyped-decorator]
def report(context: Connection, run: str = "latest") -> None:
    """Build a run's report.html again."""
    console = Console()

    def work() -> int:
        path = page.write(record.find(folders.RUNS, run))
        console.line(folders.display_path(path))
        return DONE

    _end(console, work)


def _end(console: Console, work: Callable[[], int]) -> None:
    raise Exit(code=exit.code_of(console, work))
