"""A Slurm job: the commands that a login node runs for us, and the readers of its answers. The readers are pure.

The run's folder is `.muster/runs/RUN` below a folder that the login node and the compute nodes share. If that is not
the home, the caller passes that folder to the commands as their home (Session.at_home).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..core import fields
from ..core.errors import BadAnswer
from ..core.fields import text
from ..core.names import NodeName, RunId, node_name
from .commands import PIECE, script

# Bytes to show of a log when a command begins to follow it, and of a job's output after its end.
LINGER, LAST_WORDS = 64 << 10, 4 << 10
_MOST_NODES = 10_000
_PATH = text(4096, r"/[^\x00-\x1f\x7f]*")
_JOB = re.compile(r"([1-9][0-9]{0,18})(;[A-Za-z0-9._-]{1,100})?")
_STATE = re.compile(r"([A-Z_]{2,30})\b.*")
_UNITS = (1, 60, 3600, 86400)
_CODE = re.compile(r"([0-9]{1,3}):([0-9]{1,3})")


@dataclass(frozen=True)
class ClusterLook:
    """What a login node reports before a deploy. `shared`: the folder's path there; `wrong`: why it cannot be used.

    `lacks`: commands that are missing; `taken`: another run already has the folder.
    """

    version: str = ""
    shared: str = ""
    wrong: str = ""
    lacks: tuple[str, ...] = ()
    taken: bool = False


@dataclass(frozen=True)
class Job:
    """What Slurm reports about a job. `state`: Slurm's own word, or AWAY, GONE or NO_FOLDER; `reason`: Slurm's reason.

    `code` and `signal`: how its batch script ended; `restarts`: how often it was requeued; `hosts`: its nodes; `ran_s`:
    seconds since its current start.
    """

    state: str
    reason: str = ""
    hosts: tuple[NodeName, ...] = ()
    code: int = 0
    signal: int = 0
    restarts: int = 0
    limit: str = ""
    ran_s: float = 0.0


# The controller does not answer; Slurm no longer knows the job; the run's folder does not exist.
AWAY, GONE, NO_FOLDER = "away", "gone", "nofolder"
WAITS = frozenset(
    ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING", "RESV_DEL_HOLD")
)
LIVES = frozenset(("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"))
ENDED = frozenset(
    (
        *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
        *("OUT_OF_MEMORY", "REVOKED", GONE, NO_FOLDER),
    )
)


def follow(run: RunId, job: str, mark: str, every_s: float, ranks: Collection[int] | None) -> tuple[str, ...]:
    """Report what changes in a job and its run's folder until the reader stops. Standard input: commands.file_lines.

    `ranks`: the ranks whose logs are sent; None: all.
    """
    shown = "all" if ranks is None else f",{','.join(map(str, ranks))},"
    return script("follow-job", run, job, mark, str(PIECE), f"{every_s:g}", shown, str(LINGER))


def state(run: RunId, job: str = "") -> tuple[str, ...]:
    """Ask what Slurm reports about a job now, and its last output, for parse_state; without `job`, the run's job."""
    return script("job-now", run, job, str(LAST_WORDS))


def parse_look(answer: str) -> ClusterLook:
    """Read the answer of scripts/look_cluster.sh. Raises BadAnswer."""
    rows = fields.rows(answer)
    seen = ClusterLook(
        text(200)(fields.first(rows, "version")[:200], "Slurm's version"),
        _PATH(fields.first(rows, "shared"), "the shared folder") if "shared" in rows else "",
        fields.first(rows, "wrong")[:200],
        tuple(fields.first(rows, "lacks").split())[:20],
        "taken" in rows,
    )
    if not (seen.shared or seen.wrong or seen.lacks):
        raise BadAnswer("the login node", "`shared PATH`", answer[:200])
    return seen


def job_id(value: str) -> str:
    """A job's number, from sbatch's `NUMBER` or `NUMBER;CLUSTER`. Raises BadAnswer."""
    if match := _JOB.fullmatch(value.strip()):
        return match[1]
    raise BadAnswer("the job's id", "a number", value[:200])


def parse_submitted(answer: str) -> tuple[str, str]:
    """Read submit-job's answer: ("job", its id), or "refused", "busy" or "unknown" with "". Raises BadAnswer."""
    word, _, rest = answer.strip().rpartition("\n")[2].partition(" ")
    if word == "job":
        return "job", job_id(rest)
    if word in ("refused", "busy", "unknown"):
        return word, ""
    raise BadAnswer("the answer to sbatch", "`job NUMBER`", answer[:200])


def parse_kept(answer: str) -> tuple[str, ...]:
    """Read resume-job's answer: the files that the script has changed and that were therefore not replaced."""
    return tuple(line[5:] for line in answer.split("\n") if line.startswith("kept "))


def parse_job(lines: Sequence[str]) -> Job:
    """Read the lines of look_job (scripts/job_function.sh). Raises BadAnswer."""
    job, hosts = None, list[NodeName]()
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "job":
            job = Job(rest) if rest in (AWAY, GONE, NO_FOLDER) else _of_scontrol(rest)
        elif word == "record":
            job = _of_accounting(rest)
        elif word == "hosts":
            hosts = [node_name(name, "a node of the job") for name in rest.split()[:_MOST_NODES]]
    if job is None:
        raise BadAnswer("the job's state", "a line of scontrol", "\n".join(lines)[:200])
    return replace(job, hosts=tuple(dict.fromkeys(hosts)))


def parse_state(answer: str) -> tuple[str, Job | None, str]:
    """Read the answer to `state`: the id if it was asked for, the job (None: not submitted), its last output.

    Without a job, the last item is "submitting" if the job is being submitted, otherwise empty.
    """
    head, _, words = answer.partition("\nend\n")
    lines = head.removesuffix("\nend").split("\n")
    number = next((job_id(line[3:]) for line in lines if line.startswith("id ")), "")
    if "unsubmitted" in lines or "submitting" in lines:
        return number, None, "submitting" if "submitting" in lines else ""
    return number, parse_job(lines), words


def _of_scontrol(line: str) -> Job:
    reason = re.search(r" Reason=(.{0,200}?) Dependency=", line)
    restarts = _field(line, "Restarts")
    return Job(
        _state(_field(line, "JobState")),
        reason[1] if reason and reason[1] != "None" else "",
        (),
        *_codes(_field(line, "ExitCode")),
        int(restarts) if re.fullmatch(r"[0-9]{1,6}", restarts) else 0,
        _field(line, "TimeLimit"),
        _seconds(_field(line, "RunTime")),
    )


def _of_accounting(line: str) -> Job:
    state, _, code = line.partition("|")
    return Job(_state(state), "", (), *_codes(code.strip()))


def _codes(text: str) -> tuple[int, int]:
    """The exit code and the signal of a batch script, in Slurm's form `CODE:SIGNAL`."""
    match = _CODE.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _seconds(text: str) -> float:
    """Read a duration in Slurm's form: `1-02:03:04`, `02:03:04`."""
    numbers = re.findall(r"[0-9]{1,5}", text)
    return float(sum(int(number) * unit for number, unit in zip(reversed(numbers), _UNITS, strict=False)))


def _field(line: str, name: str) -> str:
    match = re.search(rf"(?:^| ){name}=(\S{{0,100}})", line)
    return match[1] if match else ""


def _state(value: str) -> str:
    """Slurm's word for a state; Slurm's accounting may add `by UID` to it."""
    if match := _STATE.fullmatch(value.strip()):
        return match[1]
    raise BadAnswer("the job's state", "a word of Slurm such as RUNNING", value[:100])
