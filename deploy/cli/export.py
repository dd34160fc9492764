"""`fab export`: a run as a file for something else that starts it. It starts nothing itself."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fabric import Connection

from ..config.script import PER_NODE, once_a_node
from ..config.script_file import file_of, refuse_missing
from ..core.errors import DONE, USAGE, UsageError
from ..core.names import asked_run
from ..core.program import FAB
from ..hosts.options import Options, environment_of, slug
from ..report.console import Console
from ..run import environment, sbatch_options
from ..run.compose_file import compose_file
from ..run.sbatch import CONTAINERS, SlurmJob, batch_script
from .command import EACH, MAX_HOURS, NPROC, RESTARTS, SCRIPT, command
from .exit import end
from .planned import planned

_TO = ("sbatch", "compose")
_IMAGE = "muster-trainer:cpu"
# The name of a job that runs Muster's own trainer.
_TRAINER = "muster-trainer"


@command(
    example=(
        f'{FAB} export --nodes 2 --gpus 8 --slurm="-t 4:00:00 -c 64" --script train.py',
        f"{FAB} export --to compose --nodes 2 --script train.py",
    ),
    codes={DONE: "the file is on standard output", USAGE: "an option was refused"},
    help={
        "to": "what will start it: sbatch or compose (default: sbatch)",
        "nodes": "how many hosts (default: 1)",
        "script": SCRIPT,
        "each": EACH,
        "args": "options of Muster's own trainer, where there is no --script (default: none)",
        "nproc": NPROC,
        "gpus": "GPUs of each host, a number (default: as --slurm says)",
        "slurm": 'more options of sbatch: "--partition=a100 --cpus-per-task=64" (default: none)',
        "setup": 'a line of a shell before it: "source venv/bin/activate"; the job ends if it fails; repeatable '
        "(default: none)",
        "container": "pyxis or apptainer: how Slurm runs --image (default: no container)",
        "image": "the image, made from Muster's own (default: muster-trainer:cpu for compose; else no container)",
        "mount": "a folder of the hosts for a container: /source:/target; repeatable (default: the job's folder)",
        "env": "a variable for the ranks: NAME=VALUE; several with commas, or repeated (default: none)",
        "restarts": RESTARTS,
        "max-hours": MAX_HOURS,
        "run": "the run's name (default: the script's, or muster-trainer)",
    },
    iterable=["setup", "mount", "env"],
)
def export(
    context: Connection,
    to: str = "sbatch",
    nodes: str = "1",
    script: str = "",
    each: str = "",
    args: str = "",
    nproc: str = "",
    gpus: str = "",
    slurm: str = "",
    setup: Sequence[str] | None = None,
    container: str = "",
    image: str = "",
    mount: Sequence[str] | None = None,
    env: Sequence[str] | None = None,
    restarts: str = "",
    max_hours: str = "",
    run: str = "",
) -> None:
    """Print a run as a file for Slurm's sbatch, or for docker compose.

    The batch script passes a stop on to the ranks, and lets Slurm
    start the job again only when it was stopped with a checkpoint.
    """
    console = Console(False)

    def work() -> int:
        words, own = planned(once_a_node(each, script), args, nproc, restarts, max_hours, "")
        own = {**own, **environment_of(Options(environment=tuple(env or ())))}
        asked = asked_run("--run", run)
        name = asked or _name(words)
        count = _count("--nodes", nodes)
        if to == "compose":
            _refuse_absent(words)
            _refuse_for_compose({"slurm": slurm, "setup": setup, "container": container, "gpus": gpus, "mount": mount})
            print(json.dumps(compose_file(name, image or _IMAGE, count, words, own), indent=2))
            return DONE
        if to != "sbatch":
            raise UsageError(f"--to {to}: not one of {', '.join(_TO)}", f"{FAB} export --to sbatch --script train.py")
        if (container and container not in CONTAINERS) or bool(container) != bool(image):
            raise UsageError(
                "--container and --image belong together: pyxis or apptainer, and its image",
                "--container pyxis --image registry#team/muster-trainer:gpu",
            )
        each_gpus = _count("--gpus", gpus) if gpus else 0
        options = _options(slurm, each_gpus, words)
        inside = ("python3", "-P", "-m", "trainer.node.agent", *words)
        job = SlurmJob(
            name,
            count,
            inside if container else ("muster", "agent", *_given({"script": script, "each": each, "args": args})),
            own,
            options,
            each_gpus,
            tuple(setup or ()),
            container,
            image,
            tuple(mount or ()),
            run=asked,
            made_by=shlex.join([FAB, *sys.argv[1:]]),
        )
        print(batch_script(job), end="")
        if few := sbatch_options.note_of_cpus("--slurm", options):
            console.note(few)
        return DONE

    end(context, console, work)


def _name(words: Sequence[str]) -> str:
    """The script's name, for a job; Muster's own trainer has no script."""
    if words[:1] != ("--script",):
        return _TRAINER
    return slug(environment.script_name([word for word in words[1:] if word != PER_NODE]))


def _options(slurm: str, gpus: int, words: Sequence[str]) -> tuple[str, ...]:
    """The words of --slurm. Raises UsageError for what sbatch would not take, and for a script that is not there."""
    options = sbatch_options.words_of("--slurm", slurm)
    sbatch_options.refuse("--slurm", options, gpus)
    if not sbatch_options.names_of(options) & {"--chdir", "-D"}:  # else the job is in another folder
        _refuse_absent(words)
    return options


def _refuse_absent(words: Sequence[str]) -> None:
    """Raise UsageError for a script that this folder lacks: it is the job's folder too."""
    path = file_of(words[1:]) if words[:1] == ("--script",) else ""
    if path and not Path(path).is_file():
        refuse_missing(path, Path(), "type the command in the job's folder, where the script is")


def _given(options: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"--{name}={value}" for name, value in options.items() if value)


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        raise UsageError(f"{name} {text}: not a number from 1", f"{name} 2")
    return int(text)


def _refuse_for_compose(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise UsageError(f"--{name}: it is for --to sbatch", f"leave out --{name}, or edit the compose file")
