"""`muster agent`: this process becomes one node of a run, below a launcher such as Slurm's srun (docs/launching.md)."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from ..core.errors import DONE, FAILED, STOPPED, USAGE, UsageError
from ..core.program import FAB
from ..job.options import Options
from ..report.console import Console
from ..run import folders
from ..send.image import commands
from .command import command
from .planned import planned


@command(
    example=(f"{FAB} agent -- train.py --lr 3e-4", f"{FAB} agent --nproc 2 --script train.py"),
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
    words, own = planned(options)
    if find_spec("torch") is None:
        raise UsageError(
            f"{sys.executable} has no torch", "install Muster in the environment that has it: its pip install"
        )
    argv = commands.agent(sys.executable, words)
    os.execve(argv[0], argv, folders.with_trainer({**os.environ, **own}))
