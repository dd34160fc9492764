"""`fab drill`: harmless faults against the user's own hosts, before the long run starts."""

from __future__ import annotations

from fabric import Connection

from ..core.errors import DONE, FAILED, REFUSED, STOPPED, USAGE
from ..core.program import FAB
from ..hosts import drill as deploy_drill
from ..job.options import Options
from ..report.console import Console
from .command import command
from .exit import end


@command(
    name="drill",
    example=(f"{FAB} drill --hosts gpu-a,gpu-b", f"{FAB} drill --hosts gpu-a,gpu-b --dry-run"),
    codes={
        DONE: "training continued after each fault",
        FAILED: "training did not continue after a fault, a host failed, or a host has a run: the error names it",
        USAGE: "an option or a file was refused: nothing was started",
        REFUSED: "preflight found what keeps the nodes from training: nothing was started",
        STOPPED: "Ctrl-C: nothing of the drill is left on the hosts",
    },
)
def drill_task(context: Connection, options: Options) -> None:
    """Break a short run on purpose, and show that it comes back.

    It kills a rank, pauses a node for ten seconds, and kills a node's
    agent. The run is Muster's own; nothing of it stays on the hosts.
    """
    console = Console(options.json)
    end(context, console, lambda: deploy_drill.drill(options, console))
