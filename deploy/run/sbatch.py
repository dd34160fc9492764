"""A run as a batch script for Slurm's sbatch. Pure: `muster export` prints it, and `muster deploy --slurm` submits it.

A user's own lines of #SBATCH are read by nobody.

What it does beside `srun` is what the job's life needs:
- SIGTERM comes to the batch script, 90 s before the time limit or `--grace` and a minute, and goes on to the step by
  scancel: one to srun would kill the step without a checkpoint.
- Only code 75, stopped with a checkpoint, requeues the job, and only while Slurm lets it run: a cancelled job ends,
  and so does one that has reached its --max-hours.
- The output is appended and the run folder is named by the job, so a requeued job continues both.
- The step gets the CPUs of the job's task: since Slurm 22.05 srun does not take --cpus-per-task from the job.
- A line of --setup that fails ends the job: without its environment, the run would end with words that hide the cause.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from ..core.errors import STOPPED
from ..job.options import FLAG
from . import sbatch_options
from .environment import GRACE, MAX_HOURS, RUN_DIR, RUN_ID

# How long before its time limit the job is asked to stop: so long, and at least what its ranks get to save and this.
_BEFORE_LIMIT_S, _AFTER_GRACE_S = 90, 60
# So long the other nodes may take to leave their verdicts once the first has ended.
_WAIT_S = 120

# For whoever reads the file alone: `muster export` and `muster deploy` say it too.
_NO_CPUS = "# No option above asks for CPUs. Many clusters then give a node's ranks one CPU: add --cpus-per-task=N."
_CPUS = '${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"}'

# Whether a node of this job has reached its limit (trainer/node/agent/limit.py). A pipe of that name is skipped.
_REACHED = f'grep -qsD skip "^job-$SLURM_JOB_ID .* reached " "${{{RUN_DIR}:-runs/slurm-$SLURM_JOB_ID}}"/nodes/.*.limit'
# It lies beside this module, where shellcheck sees it.
_LIFE = Path(__file__).with_name("scripts") / "batch_life.sh"


@dataclass(frozen=True)
class SlurmJob:
    """What sbatch is asked for. `agent`: the words that each host runs; `options`: the user's own words, for sbatch.

    `gpus`: of each host (0: as `options` say). `setup`: lines of a shell before it, such as `module load cuda`.
    `container`: pyxis or apptainer with its `image`, or empty. `mounts`: `/source:/target`. `run`: the run folder's
    name in runs/ of the job's folder (empty: slurm-JOB). `stop`: a file; if it is there, the job is not requeued.
    """

    name: str
    nodes: int
    agent: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    options: tuple[str, ...] = ()
    gpus: int = 0
    setup: tuple[str, ...] = ()
    container: str = ""
    image: str = ""
    mounts: tuple[str, ...] = ()
    output: str = "slurm-%j.out"
    run: str = ""
    stop: str = ""
    made_by: str = ""


def batch_script(job: SlurmJob) -> str:
    """The text of the batch script. Raises UsageError for a time limit that is over when the job begins."""
    before = max(_BEFORE_LIMIT_S, ceil(float(job.variables.get(GRACE) or 0)) + _AFTER_GRACE_S)
    sbatch_options.refuse_short(job.options, before)
    own = (
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        *([f"--gpus-per-node={job.gpus}"] if job.gpus else []),
        "--requeue",
        "--open-mode=append",
        f"--output={job.output}",
        f"--signal=B:TERM@{before}",
    )
    options = [*((option,) for option in own), *sbatch_options.directives(job.options)]
    lines = [
        "#!/bin/bash",
        *([f"# Made by: {' '.join(job.made_by.split())}"] if job.made_by else []),
        *(f"#SBATCH {shlex.join(option)}" for option in options),
        *([] if sbatch_options.asks_for_cpus(job.options) else [_NO_CPUS]),
        *(line for each in job.setup for line in (each, _or_end(each))),
        *(f"export {name}={shlex.quote(value)}" for name, value in sorted(job.variables.items())),
        *([f'export {RUN_DIR}="$PWD"/runs/{job.run} {RUN_ID}={job.run}'] if job.run else []),
    ]
    return "\n".join(lines) + _life(job)


def _or_end(setup: str) -> str:
    """The line that ends the job if the line of --setup before it failed: that may end in a comment."""
    words = shlex.quote(f"error: this line of {FLAG.setup} failed: {setup}")
    return f"[ $? = 0 ] || {{ printf '%s\\n' {words} >&2; exit 1; }}"


def _life(job: SlurmJob) -> str:
    """The step, and what the job does with its signal and its code."""
    text = _LIFE.read_text(encoding="utf-8")
    unless = f" && [ ! -e {shlex.quote(job.stop)} ]" if job.stop else ""
    unless += f" && ! {_REACHED}" if MAX_HOURS in job.variables else ""
    words = {"@STEP@": _srun(job), "@STOPPED@": str(STOPPED), " && @UNLESS@": unless}
    return re.sub("|".join(words), lambda place: words[place[0]], text[text.index("\n\n") + 1 :])


def _srun(job: SlurmJob) -> str:
    """One task a host, with the variables of this script whatever of a shell's the job has (--export).

    `--kill-on-bad-exit=0`: the others name the host that failed, and end by themselves.
    """
    words = ["srun", "--ntasks-per-node=1", "--export=ALL", "--kill-on-bad-exit=0", f"--wait={_WAIT_S}", _CPUS]
    return " ".join([*words, *_container(job), *map(shlex.quote, job.agent)])


def _container(job: SlurmJob) -> Sequence[str]:
    """Words of pyxis for srun, or the command of Apptainer: the folder of the job is the same in the container.

    `--nv` says no more than a line where there are no GPUs, and options of the user's may ask for some.
    """
    if job.container == "pyxis":
        mounts = "".join(f",{shlex.quote(mount)}" for mount in job.mounts)
        image = shlex.quote(f"--container-image={job.image}")
        return [image, f'--container-mounts="$PWD:$PWD"{mounts}', '--container-workdir="$PWD"']
    if job.container == "apptainer":
        binds = ['--bind "$PWD"', *(f"--bind {shlex.quote(mount)}" for mount in job.mounts)]
        return ["apptainer", "exec", "--nv", *binds, '--pwd "$PWD"', shlex.quote(job.image)]
    return []
