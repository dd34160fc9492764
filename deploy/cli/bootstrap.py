"""`fab bootstrap`. hosts/bootstrap.py decides what a host needs, hosts/bootstrap_run.py does it."""

from __future__ import annotations

import sys

from ..core.errors import DONE, FAILED, STOPPED, UsageError
from ..core.program import FAB
from ..hosts import bootstrap_run
from ..job.load import load_cluster
from ..job.options import Options
from ..report.console import Console
from .command import command


@command(
    example=f"{FAB} bootstrap --hosts gpu-a,gpu-b --dry-run",
    codes={
        DONE: "every host can run containers",
        FAILED: "a host failed, or needs something that its owner must do",
        STOPPED: "the answer was no, or Ctrl-C",
    },
)
def bootstrap(options: Options, console: Console) -> int:
    """Install Docker on Debian and Ubuntu hosts, with NVIDIA's toolkit for GPUs.

    Shows every command first, and asks.
    """
    if not options.yes and not options.dry_run and not sys.stdin.isatty():
        raise UsageError(
            "no terminal to ask on whether to install",
            "--yes installs without asking, --dry-run only shows the commands",
        )
    ask = None if options.yes else console.ask
    return bootstrap_run.run(load_cluster(options).hosts, ask, options.dry_run, console)
