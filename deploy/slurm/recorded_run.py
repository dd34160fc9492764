"""Find runs on Slurm by this user's records: runs/ID/record.json has the login node, the shared folder and the job.

Only a record with this user's valid seal counts (record.own_fields), so no other user can insert a host or a job.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import DeployError, UsageError
from ..core.names import RunId, check_run_id
from ..host.jobs import AWAY
from ..job.inventory import Host, hosts_of_flag
from ..job.load import read_run
from ..job.option_words import command_of
from ..job.options import FLAG
from ..report.console import Console
from ..run.files import folders, record, resumable
from ..run.files.resumable import WantedRun
from .login import Login, Unknown
from .plan import JobRequest


@dataclass(frozen=True)
class RecordedRun:
    """A run on Slurm. `number`: its job's id; empty if the connection broke while it was submitted."""

    run_dir: Path
    login: Host
    shared: str
    number: str
    script: bool
    words: tuple[str, ...]
    started: float
    again: str

    @property
    def run(self) -> RunId:
        """The run's id."""
        return RunId(self.run_dir.name)


def find(run: str, newest: bool = True) -> RecordedRun | None:
    """Return the run with this id if it is on Slurm; without an id, or for `latest`, the newest run if it is on Slurm.

    `newest`: whether the command may choose the newest run without an id. Raises UsageError for a name that no run has.
    """
    if run in ("", "latest"):
        own, hosts = record.newest(record.SLURM), record.newest(record.HOSTS)
        if own is None or not newest or (hosts and record.started(hosts) > record.started(own)):
            return None
        run = own.name
    folder = record.path_of(RunId(read_run(run)))
    facts = record.own_fields(folder)
    if facts.get("backend") != record.SLURM or len(facts.get("hosts", ())) != 1 or not facts.get("shared"):
        return None
    (login,) = hosts_of_flag(facts["hosts"][0])
    return RecordedRun(
        folder,
        login,
        facts["shared"],
        facts.get("job") or "",
        facts.get("script") is True,
        tuple(facts.get("arguments", ())),
        record.started(folder)[0],
        facts.get("again") or "",
    )


def to_resume(wanted: str, names: WantedRun) -> RecordedRun:
    """Return the run to resume: `wanted` is an id, or `latest` for the newest run on Slurm that matches `names`.

    `names`: what the command asks to run. Raises UsageError.
    """
    if wanted == "latest":
        newest = resumable.newest(record.SLURM, names)
        if newest is None:
            resumable.refuse_none(names, record.runs_on(record.SLURM))
        wanted = newest.name
    run_dir = record.path_of(RunId(check_run_id(FLAG.resume, wanted)))
    if not run_dir.exists():
        resumable.refuse_unknown(wanted)
    resumable.refuse_elsewhere(run_dir, record.SLURM)
    if run := find(wanted):
        return run
    raise UsageError(
        f"{FLAG.resume} {wanted}: this folder has no record of such a run on Slurm",
        "without its record, type `sbatch job.sbatch` in the run's folder on the cluster",
    )


def open_start(run_dir: Path, asked: JobRequest, login: Host, shared: str) -> dict[str, bytes]:
    """Record a start of the run in its folder, before its job is submitted; return what record.undo_start needs."""
    why, words, script = f"Slurm, through {login.destination}", asked.words, asked.script
    fields = {"hosts": [login.destination], "shared": shared, "script": script, "again": asked.again, "job": ""}
    fields |= {"sent_from": resumable.sent_from(str(asked.folder), folders.RUNS)} if asked.folder else {}
    choice = record.Choice(None, words, script=script)
    return record.open_start(run_dir, choice, record.SLURM, why, (), time.time(), {**fields, "workers": None})


def update_record(run_dir: Path, **fields: object) -> None:
    """Add new facts to the run's record: the job's id, or its nodes."""
    known = record.facts(run_dir)
    if any(known.get(name) != value for name, value in fields.items()):
        record.write_record(run_dir, {**known, **fields})


def number_of(recorded: RecordedRun, login: Login, console: Console) -> str:
    """Return the job's id; ask the cluster for it if the submission was interrupted. Raises DeployError."""
    if recorded.number:
        return recorded.number
    number, job, words = login.state(recorded.run)
    if not number and job and job.state == AWAY:
        raise Unknown(login.host.name, "Slurm does not answer")
    if not number or job is None:
        if words == "submitting":
            raise DeployError(f"{recorded.run}: another command is submitting its job now", "try again in a minute")
        raise DeployError(
            f"{recorded.run}: its job was never submitted", command_of("deploy", slurm=recorded.login.destination)
        )
    update_record(recorded.run_dir, job=number)
    console.note(f"{recorded.run} is job {number}")
    return number
