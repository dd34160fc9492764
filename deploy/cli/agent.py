"""`muster agent`: this process becomes one node of a run, below a launcher such as Slurm's srun (docs/launching.md)."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from fabric import Connection

from ..config.script import once_a_node
from ..core.errors import DONE, FAILED, STOPPED, USAGE, UsageError
from ..core.program import FAB
from ..image import commands
from ..report.console import Console
from ..run import folders
from .command import EACH, MAX_HOURS, NPROC, RESTARTS, SCRIPT, command
from .exit import end
from .planned import planned


@command(
    example=(f"{FAB} agent -- train.py --lr 3e-4", f"{FAB} agent --nproc 2 --script train.py"),
    codes={
        DONE: "the node's ranks are done",
        FAILED: "a rank failed: the error names it",
        USAGE: "an option, or what the launcher says of the nodes, was refused",
        STOPPED: "stopped by SIGTERM; Muster's own trainer, and a script with `import muster`, left a checkpoint",
    },
    help={
        "script": SCRIPT,
        "each": EACH,
        "args": "options of Muster's own trainer, where there is no --script (default: none)",
        "nproc": NPROC,
        "restarts": RESTARTS,
        "max-hours": MAX_HOURS,
        "run": "the run folder's name in runs/ (default: slurm-JOB below Slurm)",
    },
)
def agent(
    context: Connection,
    script: str = "",
    each: str = "",
    args: str = "",
    nproc: str = "",
    restarts: str = "",
    max_hours: str = "",
    run: str = "",
) -> None:
    """Be one node of a run that srun, or another launcher, starts.

    Below Slurm: srun --ntasks-per-node=1 muster agent -- train.py
    It reads SLURM_* where there is no PET_*. It needs torch in the
    Python that Muster is installed in, and no Docker.
    """

    def work() -> int:
        words, own = planned(once_a_node(each, script), args, nproc, restarts, max_hours, run)
        if find_spec("torch") is None:
            raise UsageError(
                f"{sys.executable} has no torch", "install Muster in the environment that has it: its pip install"
            )
        argv = commands.agent(sys.executable, words)
        os.execve(argv[0], argv, folders.with_trainer({**os.environ, **own}))

    end(context, Console(False), work)
