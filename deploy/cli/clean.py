"""`fab clean`: what Muster keeps on real hosts, and its removal."""

from __future__ import annotations

import sys

from ..core.errors import DONE, FAILED, STOPPED, USAGE
from ..core.program import FAB
from ..host import leftovers
from ..host.leftovers import Selection
from ..hosts import clean as hosts_clean
from ..job.options import Options
from ..report.console import Console
from .command import command


@command(
    example=(
        f"{FAB} clean --hosts gpu-a,gpu-b",
        f"{FAB} clean --hosts gpu-a,gpu-b --runs all --images --older 30d",
        f"{FAB} clean --hosts gpu-a,gpu-b --caches",
    ),
    codes={
        DONE: "listed, or removed what was named",
        FAILED: "a host did not answer, or something could not be removed",
        USAGE: "an option was refused, or there is no terminal to ask on and no --yes: nothing was removed",
        STOPPED: "the answer was no, or Ctrl-C",
    },
)
def clean(options: Options, console: Console) -> int:
    """Show what Muster keeps on hosts, with age and size; remove what is named.

    Nothing that a run uses is removed, and nothing of another user.
    """
    named = frozenset(kind for kind in ("images", "folders", "packages", "caches") if getattr(options, kind))
    wanted = Selection(options.runs, named, leftovers.age(options.older) if options.older else 0)
    ask = console.ask if sys.stdin.isatty() else None
    return hosts_clean.clean(options, wanted, options.yes, ask, console)
