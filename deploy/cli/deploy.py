"""`deploy`: a run on real hosts, or on a Slurm cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from fabric import Connection

from ..config import secrets
from ..config.script import once_a_node
from ..core.errors import DETACHED, DONE, FAILED, REFUSED, STOPPED, USAGE
from ..core.program import FAB
from ..hosts import deploy as hosts_deploy
from ..hosts import options as deploy_options
from ..hosts.options import Options
from ..report.console import Console
from ..run import environment
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
    REQUIREMENTS,
    RESTARTS,
    SECRET,
    SECRET_FILE,
    SEPARATE,
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
        f"{FAB} deploy --hosts gpu-a,gpu-b --resume latest -- train.py",
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
        "(default: none; --args asks for Muster's own trainer)",
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
        "sleep (without it, the deploy is refused then)",
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
        "separate": SEPARATE,
        "resume": "continue a run: latest (the newest of this script in this folder), or an id (default: a new run)",
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
        return hosts_deploy.deploy(options, console)

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
