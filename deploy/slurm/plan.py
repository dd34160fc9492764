"""Plan a deploy to Slurm: the batch script, its commands, the run's folder; refuse what Slurm cannot do. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import UsageError
from ..core.names import RunId
from ..job.load import value_of
from ..job.option_words import command_of
from ..job.options import FLAG, Options
from ..run import sbatch_options
from ..run.environment import RUN_DIR, RUN_ID
from ..run.sbatch import SlurmJob, batch_script
from ..send.folder.credentials import NO_CHOICE, SendChoice
from .planned import mounts_of

# Options of sbatch that users cannot set here -> what to do instead. They extend those that any batch script
# refuses, or give another remedy.
_REFUSED_OPTIONS = {
    **dict.fromkeys(("--chdir", "-D"), f"{FLAG.shared} says where the run's folder goes"),
    **dict.fromkeys(("--output", "-o", "--error", "-e", "--open-mode"), "the job's output is job.out in its folder"),
    **dict.fromkeys(
        ("--wait", "-W", "--parsable", "--wrap", "--test-only"), f"leave it out; {FLAG.dry_run} shows the plan"
    ),
    **dict.fromkeys(("--clusters", "-M"), f"give a login node of that cluster: {FLAG.slurm}"),
}
_SHARED = re.compile(r"[^\x00-\x1f\x7f%\\]{0,4000}")


@dataclass(frozen=True)
class JobRequest:
    """What to run on Slurm. `options`: as the user typed them, plus those of the start that is continued.

    `agent`: the command words of a node's agent; `variables`: those of the ranks; `sbatch`: the user's own options for
    sbatch. `again`: the command that repeats this deploy. `words`: what runs, which is a `script` or Muster's own
    trainer. `folder`: the folder that is sent, limited by `choice`. `after`: the run's earlier job, which has ended
    (empty: the run is new).
    """

    options: Options
    nodes: int
    agent: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    gpus: int = 0
    sbatch: tuple[str, ...] = ()
    again: str = ""
    words: tuple[str, ...] = ()
    script: bool = False
    folder: Path | None = None
    choice: SendChoice = NO_CHOICE
    after: str = ""


def check(asked: JobRequest) -> None:
    """Raise UsageError for values of --container, --mount, --shared and --sbatch that a run cannot have."""
    options = asked.options
    value_of(options, "container")
    mounts_of(options)
    if not _SHARED.fullmatch(options.shared):
        raise UsageError(f"{FLAG.shared} {options.shared}: Slurm would read % and \\ in it", "choose another folder")
    sbatch_options.refuse(FLAG.sbatch, asked.sbatch, asked.gpus, _REFUSED_OPTIONS)


def folder_of(shared: str, run: RunId) -> str:
    """Return the run's folder on the cluster. `shared`: the absolute path of the shared folder there."""
    return f"{shared.rstrip('/')}/.muster/runs/{run}"


def resume_command(login: str, run: str) -> str:
    """Return the command that resumes an ended run."""
    return command_of("deploy", Options(slurm=login, resume=run))


def job_of(asked: JobRequest, shared: str, run: RunId) -> SlurmJob:
    """Return the job for sbatch. It has the absolute path of the run's folder, so sbatch may be called anywhere."""
    folder, options = folder_of(shared, run), asked.options
    own = {RUN_DIR: folder, RUN_ID: run, "MUSTER_RESUME_COMMAND": resume_command(options.slurm, run)}
    return SlurmJob(
        run,
        asked.nodes,
        asked.agent,
        {**own, **asked.variables},
        (f"--chdir={folder}/work", *asked.sbatch),
        asked.gpus,
        options.setup,
        options.container,
        options.image,
        (f"{folder}:{folder}", *mounts_of(options)) if options.container else (),
        output=f"{folder}/job.out",
        stop=f"{folder}/.stop",
        made_by=f"muster {asked.again}",
    )


def shown(asked: JobRequest, run: RunId, shared: str, files: str) -> Sequence[str]:
    """Return the lines that --dry-run prints: the steps on the login node, then the batch script."""
    folder = folder_of(shared, run)
    return (
        f"on {asked.options.slurm}:",
        f"  mkdir -p {shlex.quote(folder)}/work  # {files}",
        f"  write {shlex.quote(folder)}/job.sbatch",
        f"  sbatch --parsable {shlex.quote(folder)}/job.sbatch",
        "",
        f"job.sbatch:\n{batch_script(job_of(asked, shared, run))}",
    )
