"""Commands that start a run, or prepare one that another program starts: deploy, ray, up, resume, demo, agent, export.

In all command modules, each command imports what it needs when it is called, so that `muster --list` stays fast.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DETACHED, DONE, FAILED, REFUSED, STOPPED, USAGE, UsageError
from ..job import secrets
from ..job.load import folder_to_send, load_cluster
from ..job.option_words import command_of, overridden_by
from ..job.options import FLAG, Options, flag_of, options_of
from ..job.together import refuse_pairs
from .command import command

if TYPE_CHECKING:
    from ..report.console import Console


@command(
    example=(
        command_of("deploy", hosts="gpu-a,gpu-b", more="train.py --lr 3e-4"),
        command_of("deploy", hosts="gpu-a,gpu-b", resume="latest", more="train.py"),
        command_of("deploy", slurm="login.cluster", nodes="2", more="train.py"),
    ),
    codes={
        DONE: f"the run is done; with {FLAG.detach}, it has started",
        FAILED: "the run failed, or a host did",
        USAGE: "an option, a file or the run's input was refused: nothing was started",
        REFUSED: "preflight found what keeps the nodes from training: nothing was started",
        STOPPED: "stopped on request (muster stop); Muster's own trainer has written a checkpoint",
        DETACHED: "you detached with Ctrl-C: the run continues",
    },
)
def deploy(options: Options, console: Console) -> int:
    """Train on real hosts: preflight, push, start, follow to the end.

    Ctrl-C detaches; the run continues, and muster attach follows it again.
    With --slurm, it submits a job to Slurm instead, and follows that job.
    """
    from ..hosts.start import deploy as hosts_deploy
    from . import slurm as on_slurm

    if options.slurm:
        return on_slurm.deploy(options, console)
    cluster = load_cluster(options)
    # First of all, because the hint of any later error may repeat the command line.
    secrets.refuse_open_secrets(options, secrets.values_to_hide(cluster.job.secrets, secrets.secrets_of(cluster)))
    return hosts_deploy.deploy(options, console)


@command(
    example=(command_of("ray", hosts="gpu-a,gpu-b", more="train_rl.py"), command_of("ray", hosts="gpu-a,gpu-b")),
    codes={
        DONE: f"the driver is done; with {FLAG.detach}, it has started",
        FAILED: "the driver failed, or a host did",
        USAGE: "an option, a file or the run's input was refused: nothing was started",
        REFUSED: "preflight found what keeps the hosts from working together: nothing was started",
        STOPPED: "stopped on request (muster stop)",
        DETACHED: "you detached with Ctrl-C: the run continues",
    },
)
def ray(options: Options, console: Console) -> int:
    """Run a Ray driver on a cluster of hosts that ends with the driver.

    It needs `ray[default]` in the folder's requirements.txt, or in the
    image. Without a driver, the cluster runs until muster stop.
    """
    from ..job import script
    from ..job.roles.ray import roles_of

    if options.script:
        words = script.read(options.script, Path(options.folder or ".")).words
        folder_to_send(replace(options, script=shlex.join(words)), load_cluster(options))
    roles = roles_of(options.script, len(load_cluster(options).hosts))
    return deploy.work(replace(options, script="", role=roles), console)


@command(
    example=(
        "muster up train.py --epochs 2",
        command_of("up", workers="1", more="torchrun --nproc-per-node 2 train.py"),
        f'muster up {FLAG.args}="--recipe text --data notes --steps 100"',
        command_of("up", resume="latest"),
    ),
    codes={
        DONE: "the run is done",
        FAILED: "the run failed: the error names the rank",
        USAGE: "an option or the run's input was refused: nothing was started",
        STOPPED: "stopped on request, with time to save",
    },
)
def up(options: Options, console: Console) -> int:
    """Train on this machine: your script, or Muster's own trainer.

    The nodes are plain processes; in Muster's checkout they are
    containers if a Docker engine answers.
    """
    from ..local import up as launch

    return launch.up(options, console)


@command(
    example=("muster resume", "muster resume 2026-11-28-0930-train"),
    codes={
        DONE: f"the run is done; with {FLAG.detach}, it continues",
        FAILED: "the run failed, or a host did",
        USAGE: "an option was refused, or there is no such run: nothing was started",
        REFUSED: "preflight found what keeps the nodes from training: nothing was started",
        STOPPED: "stopped on request, or by Ctrl-C on this machine",
        DETACHED: "you detached with Ctrl-C: the run continues",
    },
)
def resume(options: Options, console: Console) -> int:
    """Continue a run where its files are: on its hosts, on Slurm or here.

    Without RUN, it continues the newest; if that one is done and older
    ones are not, it asks which. It takes the script and the options from
    the run's record in runs/.
    """
    from ..local import attach as local_attach
    from ..run import resume_options
    from ..run.files import record
    from . import where

    run_dir = where.to_resume(options, console, lambda run: local_attach.record_end(run, console))
    own = record.own_fields(run_dir)
    again = replace(options, run="", resume=run_dir.name)
    if own.get("backend") == record.SLURM:
        return deploy.work(_taken(replace(again, slurm="".join(own.get("hosts", ())[:1])), "deploy"), console)
    if own.get("backend") == record.HOSTS:
        known = where.with_recorded_hosts(replace(options, run=run_dir.name), console, file_first=False)
        again = replace(again, hosts=known.hosts, cluster=known.cluster)
        return deploy.work(overridden_by(resume_options.options(own, len(load_cluster(again).hosts)), again), console)
    return up.work(overridden_by(resume_options.options(own, 0), _taken(again, "up")), console)


def _taken(options: Options, task: str) -> Options:
    """Return the options. Raises UsageError if `task` does not take one of them for a run that is not on hosts."""
    known = {each.name for each in options_of(task)} - {"hosts", "cluster"}
    if strange := [name for name, value in vars(options).items() if value and name not in known]:
        flag = flag_of(strange[0])
        # A bare word that is not a run's name here was read as hosts.
        what = f"{options.hosts}: no run of that name is here; {flag}" if options.hosts else flag
        hint = f"leave out {flag}{f' {options.hosts}' if options.hosts else ''}; `muster runs` lists the runs here"
        raise UsageError(f"{what}: {options.resume} is not a run on hosts", hint)
    return options


@command(
    example=("muster demo", command_of("demo", workers="1")),
    codes={
        DONE: "it has trained, and its page is written",
        FAILED: "training failed: the error names the rank",
        STOPPED: "stopped on request, with time to save",
    },
)
def demo(options: Options, console: Console) -> int:
    """Train handwritten digits on this machine, to see what a run looks like.

    It starts three nodes, as plain processes. In Muster's checkout,
    `make up` does the same, in containers if a Docker engine answers.
    """
    return up.work(replace(options, args="--recipe digits"), console)


@command(
    example=("muster agent train.py --lr 3e-4", command_of("agent", nproc="2", more="train.py")),
    codes={
        DONE: "the node's ranks are done",
        FAILED: "a rank failed: the error names it",
        USAGE: "an option was refused, or what the launcher says about the nodes",
        STOPPED: "stopped by SIGTERM; Muster's own trainer, and a script with `import muster`, left a checkpoint",
    },
)
def agent(options: Options, console: Console) -> int:
    """Act as one node of a run that srun or another launcher starts.

    In Slurm: srun --ntasks-per-node=1 muster agent train.py
    It reads PET_*, or SLURM_* if PET_* is not set. It needs torch in
    the Python that Muster is installed in, and no Docker.
    """
    from ..run.files import folders
    from ..send.image import commands
    from ..slurm.planned import planned

    refuse_pairs("agent", options)
    words, own = planned(options)
    if find_spec("torch") is None:
        raise UsageError(
            f"{sys.executable} has no torch", "install Muster with the pip of the environment that has torch"
        )
    argv = commands.agent(sys.executable, words)
    os.execve(argv[0], argv, folders.with_muster({**os.environ, **own}))


@command(
    example=(
        f'{command_of("export", nodes="2", gpus="8")} {FLAG.slurm}="-t 4:00:00 -c 64" train.py',
        command_of("export", to="jobset", nodes="2", image="team/train:1", more="train.py"),
    ),
    codes={DONE: "the file is on standard output", USAGE: "an option was refused"},
)
def export(options: Options, console: Console) -> int:
    """Print a run as a file for Slurm's sbatch, or for Kubernetes.

    There, a run that was stopped with a checkpoint is started again,
    and a run that failed is not.
    """
    from ..slurm import export as batch

    return batch.export(options, console)
