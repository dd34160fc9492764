"""`fab leave` and `fab join`: other hosts for a run that goes on."""

from __future__ import annotations

from ..core.errors import DONE, FAILED, STOPPED, USAGE
from ..core.program import FAB
from ..hosts import join as deploy_join
from ..hosts import leave as deploy_leave
from ..hosts import recorded
from ..job.options import Options
from ..report.console import Console
from .command import command


@command(
    example=f"{FAB} leave --hosts gpu-b --run ID",
    codes={
        DONE: "the hosts have left: their nodes have ended, and the others continue",
        FAILED: "a host did not answer, or its node did not: the error names it",
        USAGE: "a host must stay, because too few would be left: it continues; the hosts named before it have left",
        STOPPED: "Ctrl-C: a node that was already asked still leaves",
    },
)
def leave(options: Options, console: Console) -> int:
    """Take hosts out of a run with --min-nodes, which goes on.

    The others agree at once, and train on from the newest checkpoint;
    a spare takes the place. The host's GPUs are free then, its files
    stay, and it does not come back by itself.
    """
    deploy_leave.refuse_unnamed(options, "leave")
    return deploy_leave.leave(recorded.filled(options, console), console)


@command(
    example=f"{FAB} join --hosts gpu-b --run ID",
    codes={
        DONE: "the nodes have started, and take part or wait as spares",
        FAILED: "a host did not answer, or its node does not hear from the others: the error names it",
        USAGE: "a host cannot join: nothing was changed there; the hosts named before it have joined",
        STOPPED: "Ctrl-C: a node that has already started still joins",
    },
)
def join(options: Options, console: Console) -> int:
    """Bring hosts back into a run with --min-nodes, which goes on.

    A host that has left it, or whose node was lost, takes a free place
    after the next checkpoint; where none is free, it waits as a spare.
    """
    deploy_leave.refuse_unnamed(options, "join")
    return deploy_join.join(recorded.filled(options, console), console)
