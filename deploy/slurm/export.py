"""A run as a batch script for Slurm's sbatch, as `muster export` prints it. It starts nothing itself."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..core.errors import DONE
from ..job.load import environment_of, gpus_of_each_node, read_run, read_text
from ..job.options import FLAG, Options
from ..job.script import PER_NODE
from ..job.script_file import file_of, refuse_missing
from ..report.console import Console
from ..run import environment, sbatch_options
from ..run.sbatch import SlurmJob, batch_script, refuse_container
from ..send.image.model import slug
from .planned import agent_of, planned

# The name of a job that runs Muster's own trainer.
_TRAINER = "muster-trainer"


def export(options: Options, console: Console) -> int:
    """Print the batch script. Raises UsageError for an option that is refused."""
    words, own = planned(replace(options, run=""))
    own = {**own, **environment_of(options)}
    asked = read_run(options.run)
    name = asked or _name(words)
    count: int = read_text("nodes", options.nodes or "1")
    refuse_container(options.container, options.image)
    gpus = gpus_of_each_node(options)
    sbatch = _sbatch_options(options.slurm, gpus, words)
    job = SlurmJob(
        name,
        count,
        agent_of(options, words),
        own,
        sbatch,
        gpus,
        options.setup,
        options.container,
        options.image,
        options.mount,
        run=asked,
        made_by=shlex.join(["muster", *sys.argv[1:]]),
    )
    print(batch_script(job), end="")
    if few := sbatch_options.note_of_cpus(FLAG.slurm, sbatch):
        console.note(few)
    return DONE


def _name(words: Sequence[str]) -> str:
    """The script's name, for a job; Muster's own trainer has no script."""
    if words[:1] != (environment.SCRIPT,):
        return _TRAINER
    return slug(environment.script_name([word for word in words[1:] if word != PER_NODE]))


def _sbatch_options(slurm: str, gpus: int, words: Sequence[str]) -> tuple[str, ...]:
    """The words of --slurm. Raises UsageError for what sbatch would not take, and for a script that is not there."""
    options = sbatch_options.words_of(FLAG.slurm, slurm)
    sbatch_options.refuse(FLAG.slurm, options, gpus)
    if not sbatch_options.names_of(options) & {"--chdir", "-D"}:  # else the job is in another folder
        _refuse_absent(words)
    return options


def _refuse_absent(words: Sequence[str]) -> None:
    """Raise UsageError for a script that this folder lacks: it is the job's folder too."""
    path = file_of(words[1:]) if words[:1] == (environment.SCRIPT,) else ""
    if path and not Path(path).is_file():
        refuse_missing(path, Path(), "type the command in the job's folder, where the script is")
