"""Commands beside the ranks of a run on real hosts: exec, shell."""

from __future__ import annotations

import sys

from fabric import Connection

from ..core.errors import DONE, FAILED, STOPPED
from ..core.program import FAB
from ..hosts import within
from ..hosts.options import Options
from ..report.console import Console
from .command import JSON, RUN, command
from .runs import end

_RANK = "beside this rank"


@command(
    name="exec",
    example=(f"{FAB} exec --hosts gpu-a,gpu-b -- nvidia-smi", f"{FAB} exec --hosts gpu-a --rank 0 -- ls -la outputs"),
    codes={
        DONE: "the command ended with 0 on every host; else its largest code",
        FAILED: "a host did not answer; the others are shown",
        STOPPED: "Ctrl-C: the command was ended on every host",
    },
    help={**RUN, **JSON, "rank": f"{_RANK} alone (default: on every host of the run)"},
)
def exec_task(
    context: Connection, hosts: str = "", cluster: str = "", run: str = "", rank: str = "", json: bool = False
) -> None:
    """Run the command after -- in a run's container on every host.

    It runs as the run's user, in the folder where the script works.
    """
    console = Console(json)
    load = Options(hosts, cluster).load
    end(context, console, lambda: within.exec_on_hosts(load(), run, rank, _words(), console))


@command(
    example=f"{FAB} shell --hosts gpu-a,gpu-b --rank 3",
    codes={DONE: "the shell has ended, with this code or another one of its own"},
    help={**RUN, "rank": f"{_RANK} (default: 0)"},
)
def shell(context: Connection, hosts: str = "", cluster: str = "", run: str = "", rank: str = "") -> None:
    """Open a shell in a run's container. The run is not disturbed.

    It is that of the run's user, in the folder where the script works.
    Words after -- are started instead of the shell.
    """
    end(context, Console(False), lambda: within.shell(Options(hosts, cluster).load(), run, rank, _words()))


def _words() -> list[str]:
    """The words after `--`, as they were typed."""
    typed = sys.argv[1:]
    return typed[typed.index("--") + 1 :] if "--" in typed else []
