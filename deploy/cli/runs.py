"""Commands that change something on real hosts: deploy, push, attach, stop, fetch, trust, unlock."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from fabric import Connection

from ..config import secrets
from ..config.script import once_a_node
from ..core.errors import DETACHED, DONE, FAILED, REFUSED, STOPPED, USAGE, UsageError
from ..core.program import FAB
from ..host import lock as host_lock
from ..hosts import attach as deploy_follow
from ..hosts import delete as deploy_delete
from ..hosts import deploy as deploy_launch
from ..hosts import fetch as deploy_home
from ..hosts import options as deploy_options
from ..hosts import push as deploy_push
from ..hosts import recorded
from ..hosts import stop as deploy_stop
from ..hosts.options import Options
from ..local import one_file
from ..report.console import Console
from ..run import environment, folders
from ..slurm import runs as slurm_runs
from ..ssh import session
from . import renamed
from . import slurm as on_slurm
from .command import (
    ARBITER,
    EACH,
    ENV_FILE,
    GPUS,
    HOSTS,
    INCLUDE,
    JSON,
    KEEP,
    LIMIT,
    MAX_HOURS,
    MIN_NODES,
    NO_CACHE,
    NPROC,
    ON_END,
    OVERLAY,
    RECORDED,
    REQUIREMENTS,
    RESTARTS,
    SECRET,
    SECRET_FILE,
    SHOWN,
    SPARE,
    STYLE,
    UNWATCHED,
    WAIT_LOST,
    command,
    split,
)
from .exit import end


@command(
    example=(
        f'{FAB} deploy --hosts gpu-a,gpu-b --script "train.py --lr 3e-4"',
        f"{FAB} deploy --hosts gpu-a,gpu-b --resume latest",
        f"{FAB} deploy --slurm login.cluster --nodes 2 --script train.py",
    ),
    codes={
        DONE: "the run is done; with --detach, it has started",
        FAILED: "the run failed, or a host did",
        USAGE: "an option, a file or the run's input was refused: nothing was started",
        REFUSED: "preflight found what keeps the nodes from training: nothing was started",
        STOPPED: f"stopped on request ({FAB} stop); Muster's own trainer has written a checkpoint",
        DETACHED: "Ctrl-C left the run, which continues",
    },
    hidden=("name",),
    iterable=["env", "secret", "env_file", "secret_file", "mount", "include", "keep", "setup"],
    help={
        **HOSTS,
        **JSON,
        "run": "the run's id (default: date, time and the script's name)",
        "script": 'your script and its arguments, as you type it: "train.py --lr 3e-4", "torchrun ...", "bash run.sh" '
        "(default: Muster's own trainer)",
        "each": EACH,
        "style": STYLE,
        "args": "options of Muster's own trainer, where there is no --script (default: none)",
        "folder": "the folder to send (default: this folder with --script, else none)",
        "image": "the image to run in (default: muster-trainer:cpu, or :gpu where there are GPUs)",
        "dockerfile": "build the image here first, from this file and the folder it lies in (default: none)",
        "env": "a variable for the ranks: NAME=VALUE; several with commas, or repeated (default: none)",
        "secret": SECRET,
        "env-file": ENV_FILE,
        "secret-file": SECRET_FILE,
        "include": INCLUDE,
        "folder-limit": LIMIT,
        "mount": "a folder of the hosts for the ranks: /source:/target, with :ro, or with :create to make it where it "
        "is missing; repeatable (default: none)",
        "no-cache": NO_CACHE,
        "keep": KEEP,
        "nproc": NPROC,
        "gpus": GPUS,
        "wait": "let the nodes wait on the hosts until these, or enough of their GPUs, are free: this machine may "
        "sleep (default: refuse)",
        "max-hours": MAX_HOURS,
        "wait-lost": WAIT_LOST,
        "on-end": ON_END,
        "name": "refused: --run names the run",
        "min-nodes": MIN_NODES,
        "spare": SPARE,
        "arbiter": ARBITER,
        "overlay": OVERLAY,
        "detach": "return once the run has started",
        "dry-run": "print what each host would do, and do nothing",
        "force": "start although preflight refuses; the run's record says what was ignored",
        "separate": "let each rank train alone, on purpose: without this, ranks that do are a failure",
        "resume": "continue from the newest checkpoint: latest, or a run's id (default: start a new run)",
        "rank": SHOWN,
        "restarts": RESTARTS,
        "requirements": REQUIREMENTS,
        "no-observe": UNWATCHED,
        "slurm": on_slurm.LOGIN,
        "nodes": on_slurm.NODES,
        "sbatch": on_slurm.SBATCH,
        "setup": on_slurm.SETUP,
        "shared": on_slurm.SHARED,
        "container": on_slurm.CONTAINER,
    },
)
def deploy(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    script: str = "",
    each: str = "",
    style: str = "",
    args: str = "",
    folder: str = "",
    image: str = "",
    dockerfile: str = "",
    env: Sequence[str] | None = None,
    secret: Sequence[str] | None = None,
    env_file: Sequence[str] | None = None,
    secret_file: Sequence[str] | None = None,
    mount: Sequence[str] | None = None,
    include: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    nproc: str = "",
    gpus: str = "",
    wait: bool = False,
    max_hours: str = "",
    on_end: str = "",
    name: str = "",
    detach: bool = False,
    dry_run: bool = False,
    force: bool = False,
    separate: bool = False,
    resume: str = "",
    rank: str = "",
    restarts: str = "",
    requirements: str = "",
    no_observe: bool = False,
    folder_limit: str = "",
    no_cache: bool = False,
    wait_lost: str = "",
    min_nodes: str = "",
    spare: str = "",
    arbiter: str = "",
    overlay: bool = False,
    slurm: str = "",
    nodes: str = "",
    sbatch: str = "",
    setup: Sequence[str] | None = None,
    shared: str = "",
    container: str = "",
    json: bool = False,
) -> None:
    """Train on real hosts: preflight, push, start, follow to the end.

    Ctrl-C leaves the run, which continues; fab attach comes back to it.
    With --slurm, it submits a job instead, and follows that.
    """
    given, console = dict(locals()), Console(json)

    def work() -> int:
        if slurm:
            return on_slurm.deploy(given, console)
        on_slurm.refuse_alone(given)
        options = replace(_options(given), script=once_a_node(each, script))
        for variable, value in environment.asked_style(style, bool(options.script)).items():
            options = replace(options, environment=(*options.environment, f"{variable}={value}"))
        _refuse_open_secrets(options)  # before a refusal repeats the command line
        renamed.refuse_names(sys.argv[1:], run, script, name)
        return deploy_launch.deploy(options, console)

    end(context, console, work)


def _refuse_open_secrets(options: Options) -> None:
    """Raise UsageError if the command line contains the value of a secret."""
    cluster = options.load()
    known = secrets.telling(cluster.job.secrets, deploy_options.secrets_of(cluster))
    deploy_options.refuse_open_secrets(options, known)


def _options(given: Mapping[str, Any]) -> Options:
    """What is given, as the options of a run on hosts."""
    other = {"arguments": "args", "processes": "nproc", "environment": "env", "secrets": "secret", "mounts": "mount"}
    other |= {"env_files": "env_file", "secret_files": "secret_file"}
    asked: dict[str, Any] = {field.name: given[other.get(field.name, field.name)] for field in fields(Options)}
    tuples = ("environment", "secrets", "mounts", "keep", "env_files", "secret_files")
    asked |= {name: tuple(asked[name] or ()) for name in tuples} | {"include": split(given["include"])}
    return Options(**asked)


@command(
    example=f"{FAB} push --hosts gpu-a,gpu-b --folder examples",
    codes={DONE: "every host has the image and the folder"},
    iterable=["secret", "include", "env_file"],
    help={
        **HOSTS,
        **JSON,
        "secret": "what must never be sent: as for deploy; repeatable (default: none)",
        "env-file": "a file such as .env, whose values must never be sent; repeatable (default: none)",
        "include": INCLUDE,
        "folder-limit": LIMIT,
        "folder": "the folder to send (default: cluster.toml's, or none)",
        "image": "the image to send (default: muster-trainer:cpu, or :gpu where there are GPUs)",
        "dockerfile": "build the image here first, from this file and the folder it lies in (default: none)",
        "requirements": REQUIREMENTS,
        "dry-run": "say what would be sent, and send nothing",
    },
)
def push(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    folder: str = "",
    image: str = "",
    dockerfile: str = "",
    secret: Sequence[str] | None = None,
    env_file: Sequence[str] | None = None,
    include: Sequence[str] | None = None,
    folder_limit: str = "",
    requirements: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Send an image and a folder to real hosts. Starts nothing."""
    options = Options(hosts, cluster, folder=folder, image=image, dry_run=dry_run, dockerfile=dockerfile)
    options = replace(options, secrets=tuple(secret or ()), include=split(include), folder_limit=folder_limit)
    options = replace(options, env_files=tuple(env_file or ()))
    options = replace(options, requirements=requirements)
    console = Console(json)
    end(context, console, lambda: deploy_push.push(options, console))


@command(
    example=f"{FAB} attach --hosts gpu-a,gpu-b",
    codes={
        DONE: "the run is done",
        FAILED: "the run failed, or a host did",
        STOPPED: f"stopped on request ({FAB} stop); Muster's own trainer has written a checkpoint",
        DETACHED: "Ctrl-C left the run, which continues",
    },
    iterable=["secret", "env_file", "secret_file"],
    help={
        **RECORDED,
        **JSON,
        "secret": SECRET,
        "env-file": ENV_FILE,
        "secret-file": SECRET_FILE,
        "rank": SHOWN,
        "wait-lost": f"{WAIT_LOST[: WAIT_LOST.index(' (')]} (default: as the run was started)",
    },
)
def attach(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    secret: Sequence[str] | None = None,
    env_file: Sequence[str] | None = None,
    secret_file: Sequence[str] | None = None,
    rank: str = "",
    wait_lost: str = "",
    json: bool = False,
) -> None:
    """Follow a run to its end, and show what it prints.

    Ctrl-C leaves the run, which continues. If nodes wait for their
    secrets, attach hands them in again. Of a run that has ended, it
    shows the end and exits with the run's own code.
    """
    console, options = Console(json), Options(hosts, cluster, run, secrets=tuple(secret or ()), rank=rank)
    options = replace(options, env_files=tuple(env_file or ()), secret_files=tuple(secret_file or ()))
    options = replace(options, wait_lost=wait_lost)

    def work() -> int:
        if known := on_slurm.of_run(hosts, cluster, run):
            return slurm_runs.attach(known, rank, console)
        return deploy_follow.attach(recorded.filled(options, console), console)

    end(context, console, work)


@command(
    example=f"{FAB} stop --hosts gpu-a,gpu-b",
    codes={DONE: "the run has ended, in whatever way"},
    help={**RECORDED, **JSON, "now": "kill it at once, without a checkpoint"},
)
def stop(
    context: Connection, hosts: str = "", cluster: str = "", run: str = "", now: bool = False, json: bool = False
) -> None:
    """Stop a run with a checkpoint, and say how it ended. Ctrl-C kills it."""
    console, options = Console(json), Options(hosts, cluster, run)

    def work() -> int:
        if known := on_slurm.of_run(hosts, cluster, run):
            return slurm_runs.stop(known, now, console)
        return deploy_stop.stop(recorded.filled(options, console), now, console)

    end(context, console, work)


@command(
    example=f"{FAB} fetch --hosts gpu-a,gpu-b",
    codes={
        DONE: "the run's folder is here, from every host",
        FAILED: "a host failed: the error names it; what the other hosts sent is here",
    },
    iterable=["only"],
    help={
        **RECORDED,
        **JSON,
        "run": "the run's id, or latest (default: the only run on these hosts; without hosts, the latest on hosts)",
        "only": "what matches alone: 'work/outputs/*'; repeatable (default: all but caches and unchanged sent files)",
        "state": "then write the newest checkpoint, whose parts several hosts have, into one file: state.pt, or "
        "model.safetensors for the weights alone (default: none)",
    },
)
def fetch(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    run: str = "",
    only: Sequence[str] | None = None,
    state: str = "",
    json: bool = False,
) -> None:
    """Copy what a run wrote to this machine, and build its report.

    It does not copy again what is here already.
    """
    console = Console(json)

    def work() -> int:
        if state:
            one_file.refuse(state)
        if known := on_slurm.of_run(hosts, cluster, run):
            folder = slurm_runs.fetch(known, tuple(only or ()), console)
        else:
            options = recorded.filled(Options(hosts, cluster, run), console)
            folder = deploy_home.fetch(options.load(), options.run, tuple(only or ()), console)
        console.line(folders.display_path(folder), {"kind": "fetched", "run": folder.name, "folder": str(folder)})
        return one_file.gather(folder, state, console.note) if state else DONE

    end(context, console, work)


@command(
    example=f"{FAB} trust --hosts gpu-a,gpu-b",
    codes={
        DONE: "every question was answered",
        FAILED: "a host does not answer, or shows another key than the known one",
    },
    help={**HOSTS, **JSON},
)
def trust(context: Connection, hosts: str = "", cluster: str = "", json: bool = False) -> None:
    """Show the SSH keys of unknown hosts, and ask whether to trust them."""
    console = Console(json)

    def ask(question: str) -> bool:
        if not sys.stdin.isatty():
            raise UsageError("no terminal to ask on whether to trust a host", f"run `{FAB} trust` on a terminal")
        return console.ask(question)

    def work() -> int:
        for host, words in session.trust(Options(hosts, cluster).load().hosts, ask, console.note).all().items():
            console.line(f"{host}  {words}", {"kind": "trust", "host": host, "message": words})
        return DONE

    end(context, console, work)


@command(
    example=f"{FAB} unlock --hosts gpu-a,gpu-b",
    codes={DONE: "no host is locked", STOPPED: "the answer was no, or Ctrl-C: the locks stay"},
    help={**HOSTS, **JSON, "yes": "do not ask, even where the deploy that holds the lock is alive"},
)
def unlock(context: Connection, hosts: str = "", cluster: str = "", yes: bool = False, json: bool = False) -> None:
    """Remove a deploy's lock from hosts. Asks first if that deploy is alive."""
    console = Console(json)

    def work() -> int:
        with session.open_all(Options(hosts, cluster).load().hosts) as opened:
            sessions = opened.all()
            seen = host_lock.look(sessions.values()).all()
            held = {host: lock for host, lock in seen.items() if lock}
            alive = [] if yes else [f"{host}: {lock.shown}" for host, lock in held.items() if lock.alive]
            if alive and not sys.stdin.isatty():
                raise UsageError(
                    f"the deploy that holds the lock is alive: {'; '.join(alive)}", "wait until it ends, or add --yes"
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


def down_hosts(hosts: str, cluster: str, run: str, delete: bool, console: Console) -> int:
    """`fab down --hosts`: remove the containers of all runs from these hosts; with `delete`, a run and its files."""
    options = Options(hosts, cluster, run)
    return deploy_delete.delete(options, console) if delete else deploy_follow.down(options, console)
