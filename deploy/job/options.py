"""The table of options: ONE row says all of an option, and whatever knows options reads it here.

A field of `Options` holds what was typed, as text, several texts, or a switch; empty means not given. Its row says
which commands take it and what it means there, what does the same on Slurm, and whether a resume repeats it. To add an
option is to add a row, and to act on it where it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from ..config import values


@dataclass(frozen=True)
class Row:
    """What an option is, beside its name and what it holds when it is not given."""

    # By command, what it means there. Other commands do not have it.
    helps: Mapping[str, str]
    # What does the same on Slurm, where a run cannot have it; empty: it can.
    slurm: str = ""
    # Only a run on Slurm has it.
    slurm_alone: bool = False
    # A resume repeats it.
    again: bool = True
    # Makes what the program uses of one text; None of one that is refused. Then the error ends with `refusal`, and in
    # the hint {command} is the command that was typed.
    read: Callable[[str], Any] | None = None
    refusal: str = ""
    hint: str = ""
    # Each of its texts may be several, with commas.
    commas: bool = False


def option(help: str, on: str, start: Any = "", *, of: Mapping[str, str] | None = None, **more: Any) -> Any:
    """A row. `on`: the commands that take it, with blanks between; `of`: what it means to others, which stand likewise.

    `start`: what it holds if it is not given, which says what it is: a text (""), several (()), a switch (False).
    """
    helps = dict.fromkeys(on.split(), help)
    for commands, other in (of or {}).items():
        helps |= dict.fromkeys(commands.split(), other)
    return field(default=start, metadata={"row": Row(helps, **more)})


_SCRIPT = 'your script and its arguments, as you type it: "train.py --lr 3e-4", "torchrun ...", "bash run.sh" '
_SECRET_FILE = (
    "a file of this machine that the ranks find as /run/secrets/NAME, in memory: NAME=FILE; repeatable (default: none)"
)
_WAITED = "how long the run waits for a host that is lost, or a link that is cut, before it ends: 90s, 10m, 1h "
_RECORDED = "where: user@a:port,b (default: the hosts of cluster.toml, else those of the run's record here)"
_BESIDE = "beside this rank"
_SLURMS_REQUEUE = "Slurm requeues a job that lost a node: leave it out"


@dataclass(frozen=True)
class Options:
    """What the user asked for, as it was typed. The order is that of the words that resume."""

    hosts: str = option(
        "where: user@a:port,b (default: the hosts of cluster.toml)",
        "deploy push bootstrap clean gpus login preflight trust unlock",
        slurm="Slurm chooses the nodes: --sbatch=--nodelist=n1,n2 names them",
        again=False,
        of={
            "leave": "the hosts to take out: user@a:port,b (required)",
            "join": "the hosts to bring in: user@a:port,b (required)",
            "why": "where the run is: user@a:port,b (default: what the run's record here says)",
            "tensorboard": "where the run is: user@a:port,b (default: what the run's record here says; once it "
            "has ended, here)",
            "runs": "list the runs on these hosts instead: user@a:port,b (default: this checkout's)",
            "down": "clean up these hosts: user@a:port,b (default: this machine; with --run, those of its record here; "
            "--delete takes none by itself)",
            "attach exec fetch logs port shell status stop": _RECORDED,
        },
    )
    cluster: str = option(
        "a file like cluster.toml (default: cluster.toml in this folder, if there is one)",
        "deploy attach push bootstrap clean gpus login preflight trust unlock exec fetch logs port shell status "
        "stop join leave",
        slurm="it lists hosts, and Slurm chooses its own: leave it out",
        again=False,
        of={
            "why": "where the run is: a file like cluster.toml (default: this machine)",
            "tensorboard": "where the run is: a file like cluster.toml (default: as for --hosts)",
            "runs": "list the runs on the hosts of this cluster.toml (default: this checkout's)",
            "down": "clean up the hosts of this cluster.toml (default: this machine)",
        },
    )
    run: str = option(
        "the run's id (default: date, time and the script's name)",
        "deploy up",
        again=False,
        of={
            "status": "show this run only, or the latest (default: all runs)",
            "stop": "the run's id, or latest (default: the only run on these hosts; without hosts, the only one "
            "here that has "
            "no end yet)",
            "fetch": "the run's id, or latest (default: the only run on these hosts; without hosts, the latest "
            "on hosts)",
            "join leave": "the run's id, or latest (default: the only run that is going on there)",
            "why": "the run's id, or latest (default: on named hosts the only run, else the latest)",
            "tensorboard": "the run's id, or latest (default: on named hosts the only run that is going on, else "
            "the latest)",
            "down": "this run only (default: all of yours)",
            "attach exec logs port shell": "the run's id, or latest (default: the only run that is going on; "
            "without hosts, the latest on "
            "hosts)",
            "agent": "the run folder's name in runs/ (default: slurm-JOB below Slurm)",
            "export": "the run's name (default: the script's, or muster-trainer)",
        },
    )
    slurm: str = option(
        "a login node of Slurm, user@login:port: submit a job there instead of using hosts (default: none)",
        "deploy",
        again=False,
        of={"export": 'more options of sbatch: "--partition=a100 --cpus-per-task=64" (default: none)'},
    )
    nodes: str = option(
        "with --slurm: how many nodes (default: 1)",
        "deploy",
        slurm_alone=True,
        of={"export": "how many hosts (default: 1)"},
    )
    sbatch: str = option(
        'with --slurm: more options of sbatch: "--partition=a100 --cpus-per-task=64" (default: none)',
        "deploy",
        slurm_alone=True,
    )
    setup: tuple[str, ...] = option(
        'with --slurm: a line of a shell before the run: "source venv/bin/activate"; the job ends if it fails; '
        "repeatable (default: none)",
        "deploy",
        (),
        slurm_alone=True,
        of={
            "export": 'a line of a shell before it: "source venv/bin/activate"; the job ends if it fails; repeatable '
            "(default: none)"
        },
    )
    shared: str = option(
        "with --slurm: a folder that login node and nodes share, for the run's files (default: the home there)",
        "deploy",
        slurm_alone=True,
    )
    container: str = option(
        "with --slurm: pyxis or apptainer, how Slurm runs --image (default: no container)",
        "deploy",
        slurm_alone=True,
        of={"export": "pyxis or apptainer: how Slurm runs --image (default: no container)"},
    )
    script: str = option(
        _SCRIPT + "(default: none; --args asks for Muster's own trainer)",
        "deploy agent export",
        again=False,
        of={"up": _SCRIPT + "(default: in Muster's checkout its own trainer, which --args asks for elsewhere)"},
    )
    each: str = option(
        "a command that runs once on each node and starts its ranks itself, as mp.spawn does, with {node_rank}, "
        "{nodes}, {ranks}, {master} and {port} (default: none)",
        "deploy up agent export",
        again=False,
    )
    args: str = option(
        "options of Muster's own trainer, where there is no --script (default: none)",
        "deploy agent export",
        again=False,
        of={"up": 'options of the trainer, in one string: --args="--recipe text --steps 100" (default: none)'},
    )
    folder: str = option(
        "the folder to send (default: this folder with --script, else none)",
        "deploy",
        of={
            "up": "the folder that holds your script (default: this folder with --script)",
            "push": "the folder to send (default: cluster.toml's, or none)",
        },
    )
    image: str = option(
        "the image to run in (default: muster-trainer:cpu, or :gpu where there are GPUs)",
        "deploy",
        of={
            "push": "the image to send (default: muster-trainer:cpu, or :gpu where there are GPUs)",
            "export": "the image, made from Muster's own (default: muster-trainer:cpu for compose; else no container)",
        },
    )
    dockerfile: str = option(
        "build the image here first, from this file and the folder it lies in (default: none)",
        "deploy push",
        slurm="build the image first: --container apptainer --image train.sif",
    )
    nproc: str = option(
        "ranks of each node: auto (one for each GPU, or one) or a number (default: auto)",
        "deploy up agent export",
        read=values.processes_flag,
        refusal="neither auto nor a number from 1 to 1024",
        hint="--nproc auto",
    )
    requirements: str = option(
        "install the packages of this file of the folder first: a requirements.txt, pyproject.toml or uv.lock; no: "
        "install none (default: the one in the folder, if there is one)",
        "deploy up push",
        slurm="install them once on the cluster: --setup 'source venv/bin/activate'",
    )
    restarts: str = option(
        "how often a script that fails or is killed is started again, with the files that it wrote (default: 0, "
        "because only a script that finds its own checkpoint continues)",
        "deploy up agent export",
    )
    gpus: str = option(
        "GPUs of each host, or of this machine: auto (all), how many free ones (2; 0 for none), or which (0,3; one "
        "alone: 3,) (default: auto)",
        "deploy up",
        of={"export": "GPUs of each host, a number (default: as --slurm says)"},
        read=values.gpus_flag,
        refusal="neither auto, how many, nor which",
        hint="--gpus 2 (any two), or --gpus 0,3 (these two)",
    )
    wait: bool = option(
        "let the nodes wait on the hosts until these, or enough of their GPUs, are free: this machine may sleep "
        "(without it, the deploy is refused then)",
        "deploy",
        False,
        slurm="a job waits in Slurm's queue anyway: leave it out",
        again=False,
    )
    max_hours: str = option(
        "stop the run in an orderly way, with a checkpoint, after so many hours (2.5); it ends as stopped (default: "
        "none)",
        "deploy up agent export",
        read=values.hours_flag,
        refusal="not a number of hours above 0",
        hint="{command} ... --max-hours 2.5",
    )
    wait_lost: str = option(
        _WAITED + "(default: 10m)",
        "deploy",
        slurm="Slurm itself ends and requeues a job that lost a node: leave it out",
        of={"attach": _WAITED + "(default: as the run was started)"},
        read=values.wait,
        refusal="not a time with its unit",
        hint="--wait-lost 90s (or 10m, 1h)",
    )
    min_nodes: str = option(
        "continue while this many nodes are left, whichever are lost; it must be more than half of them (default: all "
        "are needed)",
        "deploy up",
        slurm=_SLURMS_REQUEUE,
    )
    spare: str = option(
        "hosts that are prepared like the others, and wait; with --min-nodes, one of them takes the place of a lost "
        "host (default: none)",
        "deploy",
        slurm=_SLURMS_REQUEUE,
    )
    arbiter: str = option(
        "a host that votes on who trains, but does not train: with --min-nodes, one of two hosts, or two of four, can "
        "then continue alone (default: none)",
        "deploy",
        slurm=_SLURMS_REQUEUE,
    )
    on_end: str = option(
        "a command to run once in the run's image after the run's end, whatever the end; it gets MUSTER_END and more; "
        "or a URL that gets a JSON POST (default: none)",
        "deploy up",
        slurm="Slurm sends mail: --sbatch='--mail-type=END,FAIL'",
    )
    folder_limit: str = option(
        "the most that the folder may have, such as 4g (default: 256m, because more is usually data, for --mount)",
        "deploy up push",
        read=values.size,
        refusal="not a size",
        hint="--folder-limit 4g",
    )
    env: tuple[str, ...] = option(
        "a variable for the ranks: NAME=VALUE; several with commas, or repeated (default: none)", "deploy export", ()
    )
    secret: tuple[str, ...] = option(
        "a variable from this shell (NAME) or from a file (NAME=FILE), never shown on a host; repeatable (default: "
        "none)",
        "deploy up attach",
        (),
        slurm="put it into a file on the cluster that you alone can read: --setup 'source ~/.secrets'",
        of={"push": "what must never be sent: as for deploy; repeatable (default: none)"},
    )
    mount: tuple[str, ...] = option(
        "a folder of the hosts for the ranks: /source:/target, with :ro, or with :create to make it where it is "
        "missing; repeatable (default: none)",
        "deploy",
        (),
        of={"export": "a folder of the hosts for a container: /source:/target; repeatable (default: the job's folder)"},
        read=values.mount,
        refusal=f"not {values.MOUNT}",
        hint="--mount /data:/data:ro, and --mount again for another",
    )
    keep: tuple[str, ...] = option(
        "a path in the container that is kept with the run, as the script's folder and home are; repeatable (default: "
        "none)",
        "deploy up",
        (),
        slurm="a job writes to the cluster's disks, which stay: leave it out",
    )
    include: tuple[str, ...] = option(
        "send this file although .gitignore names it or it looks like a credential; repeatable, several with commas "
        "(default: none)",
        "deploy up push",
        (),
        commas=True,
        read=values.inside,
        refusal="not a path in the folder",
        hint="leave it out, or copy it into the folder",
    )
    env_file: tuple[str, ...] = option(
        "a file such as .env, whose variables the ranks get; each value counts as a secret; repeatable (default: none)",
        "deploy up attach",
        (),
        slurm="put it on the cluster, for you alone to read: --setup 'set -a; source ~/.env && set +a'",
        of={"push": "a file such as .env, whose values must never be sent; repeatable (default: none)"},
    )
    secret_file: tuple[str, ...] = option(
        _SECRET_FILE,
        "deploy attach",
        (),
        slurm="put it on the cluster, for you alone to read; a job reads your home",
        of={"up": _SECRET_FILE + "; only in containers"},
    )
    overlay: bool = option(
        "make an encrypted network for this run, if none connects all hosts: over one UDP port, and through a third "
        "host where two do not reach each other",
        "deploy",
        False,
        slurm="Slurm's nodes share a network: leave it out",
    )
    no_cache: bool = option(
        "keep no downloads and compiled kernels for the next run",
        "deploy up",
        False,
        slurm="Muster keeps no caches there: leave it out",
    )
    separate: bool = option(
        "let each rank train alone on purpose: without this, ranks that train alone count as failed",
        "deploy up",
        False,
    )
    no_observe: bool = option(
        "do not watch the script from inside its ranks: no steps, no loss, no stacks",
        "deploy up",
        False,
    )
    style: str = option(
        "slurm or mpi: give each rank also SLURM_PROCID or OMPI_COMM_WORLD_RANK and their like, for a script that "
        "reads those (default: torchrun's variables alone)",
        "deploy up",
    )
    rank: str = option(
        "whose output to show: a rank's number, several with commas, or all (default: 0)",
        "deploy up attach",
        again=False,
        of={
            "logs": "only this rank's lines, from its own log if it has one (default: all ranks)",
            "exec": f"{_BESIDE} alone (default: on every host of the run)",
            "port shell": f"{_BESIDE} (default: 0)",
            "tensorboard": f"{_BESIDE}: its host's event files (default: 0)",
        },
    )
    resume: str = option(
        "continue a run: latest (the newest of this script in this folder), or an id (default: a new run)",
        "deploy",
        again=False,
        of={
            "up": "continue a run: latest (the newest of this script), a run's id or folder, or a checkpoint "
            "(default: start a new run)"
        },
    )
    detach: bool = option("return once the run has started", "deploy", False, again=False)
    dry_run: bool = option(
        "print what each host would do, and do nothing",
        "deploy join leave",
        False,
        again=False,
        of={"bootstrap": "print the commands, and do nothing", "push": "say what would be sent, and send nothing"},
    )
    force: bool = option(
        "start although preflight refuses; the run's record says what was ignored",
        "deploy",
        False,
        slurm="no preflight runs before a job: leave it out",
        again=False,
    )
    workers: str = option(
        "nodes beside the master (default: 0 with --script, else 2; with --resume, as many as before)",
        "up",
        again=False,
    )
    backend: str = option(
        "auto, docker or processes (default: auto: processes for a script where there are GPUs, docker where an engine "
        "answers)",
        "up",
        again=False,
    )
    to: str = option("what will start it: sbatch or compose (default: sbatch)", "export", again=False)
    json: bool = option(
        "write JSON lines to standard output",
        "deploy attach push bootstrap clean gpus login trust unlock exec fetch logs port status stop join "
        "leave tensorboard why",
        False,
        again=False,
        of={
            "down": "write one JSON object a host; without --hosts, of what was deleted",
            "runs": "write one JSON object a run",
            "up": "write events and the result as JSON lines to standard output",
        },
    )


def row_of(each: Field[Any]) -> Row:
    """The row of a field of `Options`."""
    row: Row = each.metadata["row"]
    return row


def options_of(command: str) -> list[Field[Any]]:
    """The fields of the options that a command takes."""
    return [each for each in fields(Options) if command in row_of(each).helps]


def help_of(command: str) -> dict[str, str]:
    """What each option of a command means, by its name."""
    return {each.name: row_of(each).helps[command] for each in options_of(command)}


def flag_of(name: str) -> str:
    """The option as it is typed: `--max-hours`."""
    return f"--{name.replace('_', '-')}"
