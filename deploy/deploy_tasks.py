"""The fab tasks that act on real hosts; look_tasks.py has those that look. Faults become exit codes in task_end.py."""

from __future__ import annotations

import sys
from collections.abc import Callable

from fabric import Connection, task
from invoke.exceptions import Exit

from deploy import deploy_home, deploy_launch, host_lock, launch, session, task_end
from deploy.deploy_launch import Options
from deploy.errors import DONE, UsageError
from deploy.report import Report

WHERE = {"hosts": "user@a:port,b", "cluster": "a file as cluster.toml; default: the one of this folder"}
RUN = {**WHERE, "run": "the run's id; not needed where only one goes on"}
JSON = {"json": "JSON lines on standard output"}


@task(
    help={
        **WHERE,
        **JSON,
        "run": 'your script and its arguments, as for torchrun: --run "train.py --lr 3e-4"',
        "args": "options of Muster's own trainer, when there is no --run",
        "folder": "what to send along (default with --run: this folder)",
        "image": "the image it runs in (default: muster-trainer:cpu, or :gpu where there are GPUs)",
        "name": "the run's id (default: the minute and the script's name)",
        "detach": "return when it has started",
        "dry-run": "print what would be done on each host, and do nothing",
    }
)  # type: ignore[untyped-decorator]
def deploy(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    args: str = "",
    folder: str = "",
    image: str = "",
    name: str = "",
    detach: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train on real hosts: push, start, follow to the end."""
    options = Options(hosts, cluster, run, args, folder, image, name, detach, dry_run)
    report = Report(json)
    end(context, report, lambda: deploy_launch.deploy(options, report))


@task(help={**RUN, **JSON})  # type: ignore[untyped-decorator]
def attach(context: Connection, hosts: str = "", cluster: str = "", run: str = "", json: bool = False) -> None:
    """Follow a run that goes on, to its end."""
    report = Report(json)
    end(context, report, lambda: deploy_launch.attach(Options(hosts, cluster, run), report))


@task(help=RUN)  # type: ignore[untyped-decorator]
def stop(context: Connection, hosts: str = "", cluster: str = "", run: str = "") -> None:
    """Ask a run on real hosts to stop, with a checkpoint."""
    report = Report()
    end(context, report, lambda: deploy_launch.stop(Options(hosts, cluster, run), report))


@task(help=RUN)  # type: ignore[untyped-decorator]
def fetch(context: Connection, hosts: str = "", cluster: str = "", run: str = "") -> None:
    """Bring a run's checkpoints, logs and metrics home, and build its report."""

    def work() -> int:
        print(launch.shown(deploy_home.fetch(Options(hosts, cluster).load(), run)))
        return DONE

    end(context, Report(), work)


@task(help=WHERE)  # type: ignore[untyped-decorator]
def trust(context: Connection, hosts: str = "", cluster: str = "") -> None:
    """Show the keys of hosts that are not known yet, and ask whether to trust them."""
    report = Report()

    def work() -> int:
        for host, words in session.trust(Options(hosts, cluster).load().hosts, _ask, report.note).all().items():
            print(f"{host}  {words}")
        return DONE

    end(context, report, work)


@task(help=WHERE)  # type: ignore[untyped-decorator]
def unlock(context: Connection, hosts: str = "", cluster: str = "") -> None:
    """Take a deploy's lock off hosts, where its holder is gone for good."""

    def work() -> int:
        with session.open_all(Options(hosts, cluster).load().hosts) as opened:
            for host, holder in host_lock.break_lock(opened.all().values()).all().items():
                print(f"{host}  {f'was held by {holder}' if holder else 'was not locked'}")
        return DONE

    end(context, Report(), work)


def _ask(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("there is nobody to ask whether to trust a host", "run `fab trust` on a terminal")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def down_hosts(hosts: str, cluster: str, run: str, report: Report) -> int:
    """`fab down --hosts`: remove the containers of all runs from these hosts."""
    return deploy_launch.down(Options(hosts, cluster, run), report)


def end(context: Connection, report: Report, work: Callable[[], int]) -> None:
    """Do a task's work and end with its exit code. Raises invoke's Exit, always."""

    def one() -> int:
        # `fab --hosts a,b deploy` calls the task once for each host: N deploys where one was meant.
        if getattr(context, "host", None):
            raise UsageError("--hosts stands before the task's name", "write it behind: fab deploy --hosts a,b")
        return work()

    raise Exit(code=task_end.code_of(report, one))
