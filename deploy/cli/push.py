"""`push`: an image and a folder onto real hosts."""

from __future__ import annotations

from fabric import Connection

from ..core.errors import DONE
from ..core.program import FAB
from ..hosts import push as hosts_push
from ..job.options import Options
from ..report.console import Console
from .command import command
from .exit import end


@command(
    example=f"{FAB} push --hosts gpu-a,gpu-b --folder examples",
    codes={DONE: "every host has the image and the folder"},
)
def push(context: Connection, options: Options) -> None:
    """Send an image and a folder to real hosts. Starts nothing."""
    console = Console(options.json)
    end(context, console, lambda: hosts_push.push(options, console))
