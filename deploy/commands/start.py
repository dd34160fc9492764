"""Commands that start a run: deploy, up, agent.

In the files of commands, each imports what it calls when it is called: `fab --list` waits for none of it.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from importlib.util import find_spec

from ..core.errors import DETACHED, DONE, FAILED, REFUSED, STOPPED, USAGE, UsageError
from ..core.program import FAB
from ..job import secrets
from ..job.again import command_of
from ..job.load import load_cluster, refuse_open_secrets, refuse_without_slurm
from ..job.options import FLAG, Options
from ..report.console import Console
from .command import command


@command(
    example=(
        command_of("deploy", hosts="gpu-a,gpu-b", more=f'{FLAG.script} "train.py --lr 3e-4"'),
        command_of("deploy", hosts="gpu-a,gpu-b", resume="latest", more="-- train.py"),
        command_of("deploy", slurm="login.cluster", nodes="2", script="train.py"),
    ),
    codes={
        DONE: f"the run is done; with {FLAG.detach}, it has started",
        FAILED: "the run failed, or a host did",
        USAGE: "an option, a file or the run's input was refused: nothing was started",
        REFUSED: "preflight found what keeps the nodes from training: nothing was started",
        STOPPED: f"stopped on request ({FAB} stop); Muster's own trainer has written a checkpoint",
        DETACHED: "Ctrl-C left the run, which continues",
    },
)
def deploy(options: Options, console: Console) -> int:
    """Train on real hosts: preflight, push, start, follow to the end.

    Ctrl-C leaves the run, which continues; fab attach comes back to it.
    With --slurm, it submits a job instead, and follows that.
    """
    from ..hosts import deploy as hosts_deploy
    from . import slurm as on_slurm

    if options.slurm:
        return on_slurm.deploy(options, console)
    refuse_without_slurm(options)
    cluster = load_cluster(options)
    # Before a refusal repeats the command line.
    refuse_open_secrets(options, secrets.telling(cluster.job.secrets, secrets.secrets_of(cluster)))
    return hosts_deploy.deploy(options, console)


@command(
    example=(
        f"{FAB} up -- train.py --epochs 2",
        command_of("up", workers="1", more="-- torchrun --nproc-per-node 2 train.py"),
        f'{FAB} up {FLAG.args}="--recipe text --data notes --steps 100"',
        command_of("up", resume="latest"),
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
    from ..local import up as launch

    return launch.up(options, console)


@command(
    example=(
        command_of("ray", hosts="gpu-a,gpu-b,gpu-c", more="-- python train_rl.py"),
        command_of("ray", hosts="gpu-a,gpu-b,gpu-c"),
    ),
    codes={
        DONE: f"the driver is done; with {FLAG.detach}, the cluster has started",
        FAILED: "the driver or the head failed, or a host did",
        USAGE: "an option, a file or the run's input was refused: nothing was started",
        REFUSED: "preflight found what keeps the hosts apart: nothing was started",
        STOPPED: f"stopped on request ({FAB} stop)",
        DETACHED: "Ctrl-C left the cluster, which stays",
    },
)
def ray(options: Options, console: Console) -> int:
    """Bring up a Ray cluster on real hosts, and run a driver on it.

    It ends with the driver; without one it stays until fab stop. Ray itself
    is yours: in the image, or in the folder's requirements.
    """
    from ..hosts import deploy as hosts_deploy
    from ..job.roles.ray import ray_roles

    refuse_without_slurm(options)
    cluster = load_cluster(options)
    refuse_open_secrets(options, secrets.telling(cluster.job.secrets, secrets.secrets_of(cluster)))
    roles = ray_roles([host.name for host in cluster.hosts], shlex.split(options.script))
    return hosts_deploy.deploy(replace(options, script="", role=roles), console)


@command(
    example=(f"{FAB} agent -- train.py --lr 3e-4", command_of("agent", nproc="2", more=f"{FLAG.script} train.py")),
    codes={
        DONE: "the node's ranks are done",
        FAILED: "a rank failed: the error names it",
        USAGE: "an option, or what the launcher says of the nodes, was refused",
        STOPPED: "stopped by SIGTERM; Muster's own trainer, and a script with `import muster`, left a checkpoint",
    },
)
def agent(options: Options, console: Console) -> int:
    """Be one node of a run that srun, or another launcher, starts.

    Below Slurm: srun --ntasks-per-node=1 muster agent -- train.py
    It reads SLURM_* where there is no PET_*. It needs torch in the
    Python that Muster is installed in, and no Docker.
    """
    from ..run import folders
    from ..send.image import commands
    from .planned import planned

    words, own = planned(options)
    if find_spec("torch") is None:
        raise UsageError(
            f"{sys.executable} has no torch", "install Muster in the environment that has it: its pip install"
        )
    argv = commands.agent(sys.executable, words)
    os.execve(argv[0], argv, folders.with_trainer({**os.environ, **own}))
