"""What the agent of a node gets, where Slurm or another launcher starts it: its words, and the options as variables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from ..config import values
from ..config.script import read
from ..config.script_file import refuse_no_script
from ..core.errors import UsageError
from ..core.names import RunId, asked_run
from ..run import environment, record


def planned(
    script: str, args: str, nproc: str, restarts: str, max_hours: str, run: str, folder: str = ""
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """The agent's words, and the variables of the node that the options set; `folder`: where the script lies.

    Raises UsageError.
    """
    if script and args:
        raise UsageError("--args are options of Muster's own trainer", "put the script's options behind it in --script")
    if not (script or args):
        refuse_no_script(folder)
    asked = read(script, Path())
    ranks = asked.asked_ranks(nproc)
    count = environment.asked_restarts(asked.asked_restarts(restarts), bool(script))
    own = {"PET_NPROC_PER_NODE": _number(ranks)} if ranks not in ("", "auto") else {}
    own |= {environment.BARE_RANK: "1"} if asked.bare and not nproc else {}
    own |= {environment.MAX_RESTARTS_NAME: str(count)} if count is not None else {}
    own |= {environment.MAX_HOURS: hours} if (hours := environment.asked_hours(max_hours)) else {}
    if run_id := RunId(asked_run("--run", run)):
        own |= {environment.RUN_DIR: str(record.path_of(run_id)), environment.RUN_ID: run_id}
    return ("--script", *asked.words) if script else tuple(shlex.split(args)), own


def _number(text: str) -> str:
    if not text.isdecimal() or values.processes(int(text)) is None:
        raise UsageError(f"--nproc {text}: neither auto nor a number from 1 to 1024", "--nproc 8")
    return text
