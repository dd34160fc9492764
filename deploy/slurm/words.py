"""Turn Slurm's state of a job into a plain sentence. Pure."""

from __future__ import annotations

import re

from ..core.text import several
from ..host.jobs import Job
from ..job.option_words import command_of
from ..job.options import FLAG

_MOST_HOSTS = 8
# Why a job waits: the most frequent reasons of `squeue`, in words.
_REASONS = {
    "Priority": "jobs with a higher priority come first",
    "Resources": "no suitable nodes are free",
    "Dependency": "it waits for another job (--dependency)",
    "DependencyNeverSatisfied": "the job that it waits for failed, so it will never start",
    "BeginTime": "its start time has not come yet",
    "JobHeldUser": "its owner holds it: scontrol release starts it",
    "JobHeldAdmin": "an administrator holds it",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows",
    "PartitionTimeLimit": f"it asks for more time than its partition allows: {FLAG.sbatch}=--time=...",
    "ReqNodeNotAvail": "nodes that it asks for are down, drained or reserved",
    "Reservation": "it waits for its reservation",
    "Licenses": "no licenses are free",
    "NodeDown": "a node that it asks for is down",
    "BadConstraints": "no node satisfies its --constraint",
    "InvalidAccount": f"its account is not valid: {FLAG.sbatch}=--account=...",
    "InvalidQOS": f"its QOS is not valid: {FLAG.sbatch}=--qos=...",
    "AccountNotAllowed": "its account may not use that partition",
    "launch_failed_requeued_held": "its start failed, and Slurm holds it: scontrol release tries again",
    "JobHoldMaxRequeue": "it was requeued too often, and Slurm holds it",
}
_LIMITS = re.compile(r"(Assoc|QOS|Max|Grp)\w*(Limit|PerUser|PerAccount|PerJob|PU|Jobs|Cpu|GRES|Node|Memory)\w*")
_ENDS = {
    "TIMEOUT": "reached its time limit",
    "NODE_FAIL": "lost a node",
    "BOOT_FAIL": "did not start, because a node did not boot",
    "PREEMPTED": "was preempted, and Slurm did not requeue it",
    "DEADLINE": "reached its deadline",
    "OUT_OF_MEMORY": "used more memory than it asked for",
    "REVOKED": "was moved to another cluster",
}
_HINTS = {
    "TIMEOUT": f"ask for more: {FLAG.sbatch}=--time=8:00:00; "
    "a script that stops with a checkpoint at SIGTERM is requeued",
    "OUT_OF_MEMORY": f"ask for more: {FLAG.sbatch}=--mem=64G",
    "PREEMPTED": "submit it again, or to a partition that requeues",
}


def reason(job: Job) -> str:
    """Return why a job waits; empty while Slurm does not report a reason."""
    first = job.reason.partition(",")[0]
    known = _REASONS.get(first)
    if known is None and _LIMITS.fullmatch(first):
        known = "a limit of its user, account or QOS is reached"
    return f"{known} ({job.reason})" if known else job.reason


def waiting(number: str, job: Job) -> str:
    """Return the sentence that a job waits, and why."""
    again = f", after {several(job.restarts, 'start')}" if job.restarts else ""
    return f"job {number} waits in the queue{again}" + (f": {why}" if (why := reason(job)) else "")


def running(number: str, job: Job) -> str:
    """Return the sentence that tells where a job runs."""
    more = f" and {len(job.hosts) - _MOST_HOSTS} more" if len(job.hosts) > _MOST_HOSTS else ""
    return f"job {number} runs on {', '.join(job.hosts[:_MOST_HOSTS]) or 'nodes that Slurm does not name'}{more}"


def requeued(number: str, step: str) -> str:
    """Return the sentence that a job stopped and Slurm starts it again."""
    return f"job {number} stopped{f' at {step}' if step else ''}; Slurm starts it again"


def again(run: str) -> str:
    """Return the warning about a job that is started again and again."""
    return (
        "it is the third start of this job: a script that finds no checkpoint of its own begins again at each "
        f"({command_of('stop', run=run)}; {FLAG.sbatch}=--no-requeue keeps a job from that)"
    )


def ended(number: str, job: Job) -> tuple[str, str]:
    """Return how a job ended that was neither completed nor cancelled, and a hint for that."""
    words = _ENDS.get(job.state)
    if words is None:
        how = f"a signal {job.signal}" if job.signal else f"code {job.code}"
        words = f"ended with {how}" if job.state == "FAILED" else f"ended ({job.state})"
    limit = f" of {job.limit}" if job.state == "TIMEOUT" and re.fullmatch(r"[0-9:-]{1,30}", job.limit) else ""
    return f"job {number} {words}{limit}", _HINTS.get(job.state, "")
