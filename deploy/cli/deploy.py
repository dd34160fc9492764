"""`deploy`: a run on real hosts, or on a Slurm cluster."""

from __future__ import annotations

from ..core.errors import DETACHED, DONE, FAILED, REFUSED, STOPPED, USAGE
from ..core.program import FAB
from ..hosts import deploy as hosts_deploy
from ..job import secrets
from ..job.load import load_cluster, refuse_open_secrets, refuse_without_slurm
from ..job.options import Options
from ..job.secrets import secrets_of
from ..report.console import Console
from . import slurm as on_slurm
from .command import command


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
)
def deploy(options: Options, console: Console) -> int:
    """Train on real hosts: preflight, push, start, follow to the end.

    Ctrl-C leaves the run, which continues; fab attach comes back to it.
    With --slurm, it submits a job instead, and follows that.
    """
    if options.slurm:
        return on_slurm.deploy(options, console)
    refuse_without_slurm(options)
    _refuse_open_secrets(options)  # before a refusal repeats the command line
    return hosts_deploy.deploy(options, console)


def _refuse_open_secrets(options: Options) -> None:
    """Raise UsageError if the command line contains the value of a secret."""
    cluster = load_cluster(options)
    known = secrets.telling(cluster.job.secrets, secrets_of(cluster))
    refuse_open_secrets(options, known)
