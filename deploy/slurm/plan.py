"""What a deploy to Slurm will do: the batch script, its commands, the run's folder; refuses what Slurm cannot. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import UsageError
from ..core.names import RunId
from ..job.again import command_of
from ..job.load import value_of
from ..job.options import FLAG, Options
from ..run import sbatch_options
from ..run.environment import RUN_DIR, RUN_ID
from ..run.sbatch import SlurmJob, batch_script
from ..send.folder.credentials import NO_CHOICE, Choice
from .planned import mounts_of

# Options of sbatch that the plan sets beside those of any batch script, or with another remedy.
_OWN = {
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
    """What to run on Slurm. `options`: as they were typed, with those of the start that is continued.

    `agent`: the words of a node's agent; `variables`: of the ranks; `sbatch`: the words of the user's own options.
    `again`: the command that deploys the same again. `words`: what runs, of a `script` or for Muster's own trainer.
    `folder`: what is sent, by which `choice`. `after`: the run's earlier job, which has ended (empty: it is new).
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
    choice: Choice = NO_CHOICE
    after: str = ""


def check(asked: JobRequest) -> None:
    """Raise UsageError for a text of --container and --shared, and for words of --sbatch, that a run cannot have."""
    options = asked.options
    value_of(options, "container")
    mounts_of(options)
    if not _SHARED.fullmatch(options.shared):
        raise UsageError(f"{FLAG.shared} {options.shared}: Slurm would read % and \\ in it", "choose another folder")
    sbatch_options.refuse(FLAG.sbatch, asked.sbatch, asked.gpus, _OWN)


def folder_of(shared: str, run: RunId) -> str:
    """The run's folder on the cluster. `shared`: the whole path there."""
    return f"{shared.rstrip('/')}/.muster/runs/{run}"


def resume_command(login: str, run: str) -> str:
    """The command that starts an ended run again."""
    return command_of("deploy", Options(slurm=login, resume=run))


def job_of(asked: JobRequest, shared: str, run: RunId) -> SlurmJob:
    """What sbatch gets: the run's folder is absolute in it, so sbatch may be typed anywhere."""
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
    """What --dry-run prints: the steps on the login node, then the batch script."""
    folder = folder_of(shared, run)
    return (
        f"on {asked.options.slurm}:",
        f"  mkdir -p {shlex.quote(folder)}/work  # {files}",
        f"  write {shlex.quote(folder)}/job.sbatch",
        f"  sbatch --parsable {shlex.quote(folder)}/job.sbatch",
        "",
        f"job.sbatch:\n{batch_script(job_of(asked, shared, run))}",
    )
