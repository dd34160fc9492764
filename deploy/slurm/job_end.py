"""Decide how a run on Slurm ended, from the state of its job and the verdicts that its ranks left. Pure.

Only Slurm decides when a job is over, and a requeued job is not over. So outcome.judge, which ends runs whose nodes are
silent, is not used here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..causes.end_causes import Cause
from ..core.printable import console_line
from ..host.jobs import ENDED, GONE, NO_FOLDER, WAITS, Job
from ..job.options import FLAG
from ..run.outcome import Result, final, stopped
from ..run.progress import State
from . import words

# State -> how many seconds it must last to be final (other states: 2 s). A requeued job may look ended for a moment.
_SETTLES_S = {"PREEMPTED": 10.0, "NODE_FAIL": 10.0, "BOOT_FAIL": 10.0, GONE: 0.0, NO_FOLDER: 0.0}
_MOST_LINES = 12
_WITHOUT_MUSTER = re.compile(r"execve\(\): muster: No such file|muster: (?:command )?not found")
_NO_MUSTER = f'install Muster there, next to torch; to put it into the PATH: {FLAG.setup} "source venv/bin/activate"'
_NO_OUTPUT = (
    f"it printed nothing: can its nodes see that folder? with {FLAG.shared}, give one that they share with the "
    "login node"
)


def is_over(job: Job, for_s: float) -> bool:
    """Whether the job has ended for good. `for_s`: how long it has been in this state."""
    return job.state in ENDED and for_s >= _SETTLES_S.get(job.state, 2.0)


def is_requeued(before: Job, now: Job) -> bool:
    """Whether Slurm starts a job again. Only Slurm's controller counts restarts: without it, `restarts` is 0."""
    return now.state in WAITS or now.restarts > before.restarts


def end_of(number: str, job: Job, state: State, output: str, stop_asked: bool = False) -> Result:
    """Return how a run ended whose job is over. `state`: with its last start's verdicts; `output`: its last lines."""
    result = final(state) if state.verdicts else None
    if job.state == NO_FOLDER:
        return Result("failed", f"job {number}: the run's folder no longer exists on the cluster")
    # A stop's signal also ends a job whose program does not handle signals yet: that counts as stopped.
    if job.state == "CANCELLED" or (stop_asked and not result and {job.signal, job.code} & {15, 143}):
        if result and result.verdict in ("failed", "done", "refused"):
            return result
        who = "" if stop_asked else f"; job {number} was cancelled, but not by this command"
        ended = result or stopped(state)
        # Slurm's accounting lists no hosts: a job without hosts began if there is a verdict, or if a rank began.
        how = ended.message if job.hosts or result or state.ranks.began else "stopped before it started"
        return replace(ended, message=how + who)
    if job.state == "COMPLETED":
        return result or Result("done", "Slurm says that the job completed, but its ranks left no verdict")
    if job.state == GONE:
        return result or Result(
            "failed",
            f"could not tell how job {number} ended: Slurm has forgotten it, and its ranks left no verdict",
            "job.out in the run's folder has what it printed",
        )
    message, hint = words.ended(number, job)
    # Slurm or another user ended the run. (A run that reached its own --max-hours has another cause.)
    by_others = not stop_asked and result and result.cause == Cause.ENDED
    if result and result.verdict == "stopped" and job.state == "FAILED" and by_others:
        limit = f" ({job.limit})" if job.limit else ""
        who = f"it reached its time limit{limit}, was preempted, or somebody else stopped it"
        return replace(result, message=f"{result.message}, but not by this command: {who}")
    if result and result.verdict in ("failed", "refused", "stopped") and job.state == "FAILED":
        return result
    if result and result.message and result.verdict != "done":
        message = f"{message}; before that: {result.message}"
    if job.state == "FAILED" and not state.nodes.up:
        hint = _NO_MUSTER if _WITHOUT_MUSTER.search(output) else hint if output else _NO_OUTPUT
    return Result(
        "failed", message + _last(output), hint or "job.out in the run's folder has everything that it printed"
    )


def _last(output: str) -> str:
    lines: Sequence[str] = [line for text in output.split("\n") if (line := console_line(text))]
    return "".join(f"\n  {line}" for line in lines[-_MOST_LINES:])
