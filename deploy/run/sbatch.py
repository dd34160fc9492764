"""A run as a batch script for Slurm's sbatch. Pure: `muster export` prints it, and `muster deploy --slurm` submits it.

Muster does not read #SBATCH lines in a user's script.

In addition to calling `srun`, the batch script does what the job needs from start to end:
- Slurm sends SIGTERM to the batch script 90 s, or `--grace` and a minute, before the time limit. The script passes it
  to the step with scancel: a SIGTERM to srun would kill the step without a checkpoint.
- Only code 75 (stopped with a checkpoint) requeues the job, and only while Slurm lets it run: a cancelled job ends,
  and so does a job that has reached its --max-hours.
- The output is appended and the run folder is named after the job, so a requeued job continues both.
- The step gets the CPUs of the job's task: since Slurm 22.05 srun does not inherit --cpus-per-task from the job.
- A --setup line that fails ends the job: without its environment, the run would fail with an error that hides the
  cause.
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

# The job is asked to stop _BEFORE_LIMIT_S before its time limit, or, if that is earlier, the time that its ranks get to
# save plus _AFTER_GRACE_S before it.
_BEFORE_LIMIT_S, _AFTER_GRACE_S = 90, 60
# How long the other nodes may take to write their verdicts once the first node has ended.
_WAIT_S = 120

# For somebody who reads only the batch script; `muster export` and `muster deploy` print it, too.
_NO_CPUS = "# No option above asks for CPUs. Many clusters then give a node's ranks one CPU: add --cpus-per-task=N."
_CPUS = '${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"}'

# Whether a node of this job has reached its --max-hours (trainer/node/agent/limit.py). A pipe of that name is skipped.
_REACHED = f'grep -qsD skip "^job-$SLURM_JOB_ID .* reached " "${{{RUN_DIR}:-runs/slurm-$SLURM_JOB_ID}}"/nodes/.*.limit'
# The end of the batch script is a file next to this module, so that shellcheck checks it.
_LIFE = Path(__file__).with_name("scripts") / "batch_life.sh"


@dataclass(frozen=True)
class SlurmJob:
    """What sbatch is asked for. `agent`: the command that each host runs; `options`: the user's own options for sbatch.

    `gpus`: for each host (0: as `options` say). `setup`: shell lines that run first, such as `module load cuda`.
    `container`: pyxis or apptainer with its `image`, or empty. `mounts`: `/source:/target`. `run`: the run folder's
    name in runs/ of the job's folder (empty: slurm-JOB). `stop`: a file; if it exists, the job is not requeued.
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
    """The text of the batch script. Raises UsageError for a time limit at which the job would stop immediately."""
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
    """The line that ends the job if the --setup line before it failed.

    It is a separate line, because the --setup line may end in a comment.
    """
    words = shlex.quote(f"error: this line of {FLAG.setup} failed: {setup}")
    return f"[ $? = 0 ] || {{ printf '%s\\n' {words} >&2; exit 1; }}"


def _life(job: SlurmJob) -> str:
    """The end of the batch script: it runs the step, passes signals to it, and acts on its exit code."""
    text = _LIFE.read_text(encoding="utf-8")
    unless = f" && [ ! -e {shlex.quote(job.stop)} ]" if job.stop else ""
    unless += f" && ! {_REACHED}" if MAX_HOURS in job.variables else ""
    words = {"@STEP@": _srun(job), "@STOPPED@": str(STOPPED), " && @UNLESS@": unless}
    return re.sub("|".join(words), lambda place: words[place[0]], text[text.index("\n\n") + 1 :])


def _srun(job: SlurmJob) -> str:
    """The command that starts one task on each host, with all variables of this script.

    `--export=ALL`: whatever variables of a shell the job was submitted with. `--kill-on-bad-exit=0`: the other hosts
    report which host failed, and end by themselves.
    """
    words = ["srun", "--ntasks-per-node=1", "--export=ALL", "--kill-on-bad-exit=0", f"--wait={_WAIT_S}", _CPUS]
    return " ".join([*words, *_container(job), *map(shlex.quote, job.agent)])


def _container(job: SlurmJob) -> Sequence[str]:
    """pyxis options for srun, or the Apptainer command. The job's folder has the same path in the container.

    Without GPUs, `--nv` only prints a line; it is always given, because the user's own options may ask for GPUs.
    """
    if job.container == "pyxis":
        mounts = "".join(f",{shlex.quote(mount)}" for mount in job.mounts)
        image = shlex.quote(f"--container-image={job.image}")
        return [image, f'--container-mounts="$PWD:$PWD"{mounts}', '--container-workdir="$PWD"']
    if job.container == "apptainer":
        binds = ['--bind "$PWD"', *(f"--bind {shlex.quote(mount)}" for mount in job.mounts)]
        return ["apptainer", "exec", "--nv", *binds, '--pwd "$PWD"', shlex.quote(job.image)]
    return []
