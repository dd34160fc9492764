"""Commands that name a cause: preflight before a run, explain after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import DONE, FAILED, REFUSED, USAGE
from ..job.option_words import command_of
from ..job.options import FLAG, Options
from .command import command

if TYPE_CHECKING:
    from ..report.console import Console


@command(
    example=(
        command_of("preflight", more="gpu-a,gpu-b"),
        command_of("preflight", backend="auto", workers="2"),
    ),
    codes={
        DONE: "ready: the nodes will find each other",
        FAILED: f"a file could not be written; with {FLAG.strict}, there are warnings",
        USAGE: "an option was refused: no host was asked",
        REFUSED: "training would not start: the output names the one cause and its fix",
    },
)
def preflight(options: Options, console: Console) -> int:
    """Check whether training would start; if not, name the cause and its fix."""
    from . import preflight as looking

    return looking.preflight(options, console)


@command(
    example=("muster explain slurm-4711.out", "muster explain", "torchrun train.py 2>&1 | muster explain"),
    codes={DONE: "it names a cause", FAILED: "it names no cause: no rule matches, or the run did not fail"},
    words={
        "what...": "files, a folder of logs, - for standard input, a run (its id or latest), or a cause "
        "(default: the standard input if it is a pipe, else latest)",
    },
)
def explain(options: Options, console: Console, what: tuple[str, ...]) -> int:
    """Name the cause of a failed run from its output, or say what to check.

    WHAT is one or more files, a folder of logs, a run, or - for standard
    input. The output may come from Muster or from any torchrun. For a
    cause that Muster names, such as gpu-xid, it prints meaning and fix.
    """
    from .explain import tell

    return tell(what, console)
