"""`push`: an image and a folder onto real hosts."""

from __future__ import annotations

from ..core.errors import DONE
from ..core.program import FAB
from ..hosts import push as hosts_push
from ..job.options import Options
from ..report.console import Console
from .command import command


@command(
    example=f"{FAB} push --hosts gpu-a,gpu-b --folder examples",
    codes={DONE: "every host has the image and the folder"},
)
def push(options: Options, console: Console) -> int:
    """Send an image and a folder to real hosts. Starts nothing."""
    return hosts_push.push(options, console)
