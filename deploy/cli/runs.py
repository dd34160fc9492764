"""The fab tasks that act on real hosts; cli/look.py has those that look. Faults become exit codes in cli/exit.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from fabric import Connection, task
from invoke.exceptions import Exit

from ..core.errors import DONE, STOPPED, UsageError
from ..host import lock as host_lock
from ..hosts import attach as deploy_follow
from ..hosts import deploy as deploy_launch
from ..hosts import fetch as deploy_home
from ..hosts import options as deploy_options
from ..hosts import push as deploy_push
from ..hosts import stop as deploy_stop
from ..hosts.options import Options
from ..report.console import Console
from ..run import folders
from ..ssh import session
from . import exit, renamed

WHERE = {"hosts": "user@a:port,b", "cluster": "a file as cluster.toml; default: the one of this folder"}
RUN = {**WHERE, "run": "the run's id; not needed where only one goes on"}
INCLUDE = "a file of the folder that is called like a credential, and is sent all the same; or the option again"
SECRET = "a variable taken from this shell (NAME) or a file (NAME=FILE), never shown on a host"
JSON = {"json": "JSON lines on standard output"}


@task(
    iterable=["env", "secret", "mount", "include"],
    help={
        **WHERE,
        **JSON,
        "run": "name the run: its id (default: the minute and the script's name)",
        "script": 'your script and its arguments, as for torchrun: --script "train.py --lr 3e-4"',
        "args": "options of Muster's own trainer, when there is no --script",
        "folder": "the folder to send (default with --script: this folder)",
        "image": "the image it runs in (default: muster-trainer:cpu, or :gpu where there are GPUs)",
        "dockerfile": "or build it here first from this file, with the folder it lies in",
        "env": "a variable for the ranks, NAME=VALUE; several with commas, or the option again",
        "secret": SECRET,
        "include": INCLUDE,
        "mount": "a folder of the hosts for the ranks, /source:/target or /source:/target:ro; or the option again",
        "nproc": "processes a node: auto (as many as GPUs, or one) or a number",
        "name": "refused: it is called --run now",
        "detach": "return when it has started",
        "dry-run": "print what would be done on each host, and do nothing",
        "force": "start although preflight refuses; what is ignored is said and recorded",
        "separate": "each rank trains alone, on purpose: that they did is no failure",
        "resume": "go on from the newest checkpoint: latest, or a run's id",
    },
)  # type: ignore[untyped-decorator]
def deploy(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    script: str = "",
    args: str = "",
    folder: str = "",
    image: str = "",
    dockerfile: str = "",
    env: Sequence[str] | None = None,
    secret: Sequence[str] | None = None,
    mount: Sequence[str] | None = None,
    include: Sequence[str] | None = None,
    nproc: str = "",
    name: str = "",
    detach: bool = False,
    dry_run: bool = False,
    force: bool = False,
    separate: bool = False,
    resume: str = "",
    json: bool = False,
) -> None:
    """Train on real hosts: push, start, follow to the end."""
    asked = Options(hosts, cluster, run, script, args, folder, image, detach, dry_run)
    options = replace(asked, environment=tuple(env or ()), secrets=tuple(secret or ()), processes=nproc)
    options = replace(options, mounts=tuple(mount or ()), resume=resume, force=force, dockerfile=dockerfile)
    options = replace(options, include=tuple(include or ()), separate=separate)
    console = Console(json)

    def work() -> int:
        # The refusal repeats what was typed: not where a secret stands in it.
        deploy_options.refuse_open_secrets(options, deploy_options.secrets_of(options.load()))
        renamed.refuse(sys.argv[1:], run, script, name)
        return deploy_launch.deploy(options, console)

    end(context, console, work)


@task(
    iterable=["secret", "include"],
    help={
        **WHERE,
        **JSON,
        "secret": "what is never sent: as for deploy",
        "include": INCLUDE,
        "folder": "what to send along (default: cluster.toml's, or none)",
        "image": "the image (default: muster-trainer:cpu, or :gpu where there are GPUs)",
        "dockerfile": "or build it here first from this file, with the folder it lies in",
        "dry-run": "say what would be sent, and send nothing",
    },
)  # type: ignore[untyped-decorator]
def push(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    folder: str = "",
    image: str = "",
    dockerfile: str = "",
    secret: Sequence[str] | None = None,
    include: Sequence[str] | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Bring an image and a folder onto real hosts; start nothing."""
    options = Options(hosts, cluster, folder=folder, image=image, dry_run=dry_run, dockerfile=dockerfile)
    options = replace(options, secrets=tuple(secret or ()), include=tuple(include or ()))
    console = Console(json)
    end(context, console, lambda: deploy_push.push(options, console))


@task(iterable=["secret"], help={**RUN, **JSON, "secret": SECRET})  # type: ignore[untyped-decorator]
def attach(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    secret: Sequence[str] | None = None,
    json: bool = False,
) -> None:
    """Follow a run that goes on, to its end; hand its secrets in again where it waits for them."""
    console, options = Console(json), Options(hosts, cluster, run, secrets=tuple(secret or ()))
    end(context, console, lambda: deploy_follow.attach(options, console))


@task(help={**RUN, **JSON, "now": "kill it: no checkpoint"})  # type: ignore[untyped-decorator]
def stop(
    context: Connection, hosts: str = "", cluster: str = "", run: str = "", now: bool = False, json: bool = False
) -> None:
    """Stop a run on real hosts with a checkpoint, and say how it ended; Ctrl-C on the way kills it."""
    console = Console(json)
    end(context, console, lambda: deploy_stop.stop(Options(hosts, cluster, run), now, console))


@task(help={**RUN, **JSON})  # type: ignore[untyped-decorator]
def fetch(context: Connection, hosts: str = "", cluster: str = "", run: str = "", json: bool = False) -> None:
    """Bring a run's checkpoints, logs and metrics home, and build its report."""
    console = Console(json)

    def work() -> int:
        folder = deploy_home.fetch(Options(hosts, cluster).load(), run, console.warn)
        console.line(folders.display_path(folder), {"kind": "fetched", "run": folder.name, "folder": str(folder)})
        return DONE

    end(context, console, work)


@task(help={**WHERE, **JSON})  # type: ignore[untyped-decorator]
def trust(context: Connection, hosts: str = "", cluster: str = "", json: bool = False) -> None:
    """Show the keys of hosts that are not known yet, and ask whether to trust them."""
    console = Console(json)

    def ask(question: str) -> bool:
        if not sys.stdin.isatty():
            raise UsageError("there is nobody to ask whether to trust a host", "run `fab trust` on a terminal")
        return console.ask(question)

    def work() -> int:
        for host, words in session.trust(Options(hosts, cluster).load().hosts, ask, console.note).all().items():
            console.line(f"{host}  {words}", {"kind": "trust", "host": host, "said": words})
        return DONE

    end(context, console, work)


@task(help={**WHERE, **JSON, "yes": "do not ask, also where the lock's holder is alive"})  # type: ignore[untyped-decorator]
def unlock(context: Connection, hosts: str = "", cluster: str = "", yes: bool = False, json: bool = False) -> None:
    """Take a deploy's lock off hosts. Asks first where the deploy that holds it is alive."""
    console = Console(json)

    def work() -> int:
        with session.open_all(Options(hosts, cluster).load().hosts) as opened:
            sessions = opened.all()
            seen = host_lock.look(sessions.values()).all()
            held = {host: lock for host, lock in seen.items() if lock}
            alive = [] if yes else [f"{host}: {lock.shown}" for host, lock in held.items() if lock.alive]
            if alive and not sys.stdin.isatty():
                raise UsageError(
                    f"the deploy that holds the lock is alive: {'; '.join(alive)}", "wait for its end, or say --yes"
                )
            if alive and not console.ask(f"the deploy that holds the lock is alive: {'; '.join(alive)}. Break it?"):
                console.note("the locks stay")
                return STOPPED
            taken = host_lock.break_lock(sessions.values(), held).all()
            for host in sessions:
                words = f"was held by {taken[host]}" if host in taken else "was not locked"
                console.line(f"{host}  {words}", {"kind": "unlocked", "host": host, "holder": taken.get(host, "")})
        return DONE

    end(context, console, work)


def down_hosts(hosts: str, cluster: str, run: str, console: Console) -> int:
    """`fab down --hosts`: remove the containers of all runs from these hosts."""
    return deploy_follow.down(Options(hosts, cluster, run), console)


def end(context: Connection, console: Console, work: Callable[[], int]) -> None:
    """Do a task's work and end with its exit code. Raises invoke's Exit, always."""

    def one() -> int:
        # `fab --hosts a,b deploy` calls the task once for each host: N deploys where one was meant.
        if getattr(context, "host", None):
            raise UsageError("--hosts stands before the task's name", "write it behind: fab deploy --hosts a,b")
        return work()

    raise Exit(code=exit.code_of(console, one))
