"""`fab clean`: what Muster keeps on real hosts, and its removal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fabric import Connection

from ..core.errors import DONE, FAILED, STOPPED, USAGE
from ..core.program import FAB
from ..host import leftovers
from ..host.leftovers import Selection
from ..hosts import clean as hosts_clean
from ..job.options import Options
from ..report.console import Console
from .command import ALLOW, command
from .exit import end


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
    iterable=["runs"],
    takes="clean",
    help={
        "runs": "remove this run with all that it wrote, or all runs that have ended; repeatable (default: none)",
        "images": "remove the images that your pushes brought",
        "folders": "remove the large folders that your pushes brought",
        "packages": "remove the installed packages",
        "caches": "remove what scripts and installations have downloaded and compiled",
        "older": "remove only items that have not changed for this long: 30d, 12h (default: any age)",
        "yes": "do not ask",
        **ALLOW,
    },
)
def clean(
    context: Connection,
    options: Options,
    runs: Sequence[str] | None = None,
    images: bool = False,
    folders: bool = False,
    packages: bool = False,
    caches: bool = False,
    older: str = "",
    yes: bool = False,
) -> None:
    """Show what Muster keeps on hosts, with age and size; remove what is named.

    Nothing that a run uses is removed, and nothing of another user.
    """
    console = Console(options.json)

    def work() -> int:
        kinds = {"images": images, "folders": folders, "packages": packages, "caches": caches}
        named = frozenset(kind for kind, asked in kinds.items() if asked)
        wanted = Selection(tuple(runs or ()), named, leftovers.age(older) if older else 0)
        ask = console.ask if sys.stdin.isatty() else None
        return hosts_clean.clean(options, wanted, yes, ask, console)

    end(context, console, work)
