"""The fab tasks. Errors become exit codes here, once: 0 done, 1 failed, 2 wrong usage, 75 stopped."""

from __future__ import annotations

from collections.abc import Callable

from fabric import Connection, task
from invoke.exceptions import Exit

from deploy import launch, record
from deploy.errors import DONE, STOPPED, DeployError
from deploy.report import Report


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
    report = Report(json)
    _end(report, lambda: launch.up(launch.Options(workers, ground, resume, args), report))


@task  # type: ignore[untyped-decorator]
def down(context: Connection) -> None:
    """Stop every run of this checkout and clean up after it."""
    report = Report()

    def work() -> int:
        launch.stop_all(report)
        return DONE

    _end(report, work)


@task(help={"json": "one JSON object a run"})  # type: ignore[untyped-decorator]
def runs(context: Connection, json: bool = False) -> None:
    """List the runs of this checkout, newest last."""
    report = Report(json)

    def work() -> int:
        launch.list_all(report)
        return DONE

    _end(report, work)


@task(help={"run": "latest, an id or a path"})  # type: ignore[untyped-decorator]
def report(context: Connection, run: str = "latest") -> None:
    """Build a run's report.html again."""
    said = Report()

    def work() -> int:
        path = launch.write_page(record.find(launch.RUNS, run))
        print(launch.shown(path))
        return DONE

    _end(said, work)


def _end(report: Report, work: Callable[[], int]) -> None:
    """Do the work; leave with its exit code, an expected fault told in two lines."""
    try:
        code = work()
    except DeployError as fault:
        report.error(fault)
        code = fault.code
    except KeyboardInterrupt:
        report.warn("stopped before any node was started")
        code = STOPPED
    raise Exit(code=code)
