"""The agent's command words and variables, made from the options, if Slurm or another launcher starts the agent."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ..core.errors import UsageError
from ..core.names import NODE_PROGRAMS, RunId
from ..job.load import read_command, read_run, read_what_runs, refuse_duplicate_targets, trainer_words, value_of
from ..job.option_words import pairs_of
from ..job.options import FLAG, Options
from ..run import environment
from ..run.files import record
from ..run.start import asked_ends

# The options that define what runs.
COMMAND = ("script", "each", "args")


def planned(options: Options) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the agent's command words, and the variables that the options set on a node.

    Raises UsageError.
    """
    options, asked = read_command(read_what_runs(options))
    ranks, count = value_of(options, "nproc"), value_of(options, "restarts")
    own = {"PET_NPROC_PER_NODE": str(ranks)} if ranks not in (None, "auto") else {}
    own |= {environment.BARE_RANK: "1"} if asked.bare and not options.nproc else {}
    own |= {environment.MAX_RESTARTS_NAME: str(count)} if count is not None else {}
    own |= {environment.MAX_HOURS: hours} if (hours := value_of(options, "max_hours")) else {}
    own |= asked_ends(value_of(options, "grace"), value_of(options, "restart_with"))
    if run_id := RunId(read_run(options.run)):
        own |= {environment.RUN_DIR: str(record.path_of(run_id)), environment.RUN_ID: run_id}
    return (environment.SCRIPT, *asked.words) if options.script else trainer_words(options), own


def mounts_of(options: Options) -> tuple[str, ...]:
    """Return the folders of --mount in the form that pyxis and Apptainer accept. Raises UsageError."""
    mounts = refuse_duplicate_targets(value_of(options, "mount"))
    if lacking := next((mount.source for mount in mounts if mount.create), ""):
        made = f"{FLAG.setup} {shlex.quote(f'mkdir -p {shlex.quote(lacking)}')}"
        raise UsageError(f"{FLAG.mount} {lacking}: containers under Slurm cannot create the folder", made)
    return tuple(f"{mount.source}:{mount.target}" + ":ro" * mount.read_only for mount in mounts)


def agent_of(options: Options, words: Sequence[str]) -> tuple[str, ...]:
    """Return the command that Slurm starts on each node.

    In a container, it is the agent with its `words`; otherwise it is `muster agent` with the user's options.
    """
    if options.container:
        return ("python3", "-P", "-m", NODE_PROGRAMS, "agent", *words)
    return ("muster", "agent", *(f"{flag}={text}" for flag, text in pairs_of(options, COMMAND)))
