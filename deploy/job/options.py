"""The table of options: ONE row says everything about an option, and all code that deals with options reads it here.

A field of `Options` holds what was typed: a text, several texts, or a switch; empty means not given. Its row
(OptionRow) says which commands take it and what it means there, its key in cluster.toml and whether a file may set it
without asking, which other options it excludes or needs, and whether a resume repeats it. To add an option, add a row,
and use the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from . import values
from .values import Data, Gpus, Mount, Secret

# Values of `Key.asks`. FREE: a file may set the key without asking, as it affects only the run's containers.
# AS_IT_STANDS: the user is asked, and the question shows the bare value.
FREE, AS_IT_STANDS = "", "{}"


@dataclass(frozen=True)
class Key:
    """The key for an option in the [job] table of a cluster.toml: one value, or a list if the option has several."""

    # The key. The field of `Job` that holds its value has the same name.
    name: str
    # Turns what the file says (one element of a list) into the value; None refuses it: it `is not {wanted}`.
    read: Callable[[Any], Any]
    wanted: str
    # The question to the user for a file that came with a folder; {} is the value.
    asks: str = AS_IT_STANDS
    # `read` takes the file's folder and returns the reader: relative paths start in that folder.
    relative: bool = False
    # "file" or "folder": what must exist at the path; else it is refused.
    exists: str = ""
    # A single value may be written without a list.
    alone: bool = False
    # The values are in a table, by the names of variables.
    named: bool = False
    # An error does not show the value.
    secret: bool = False
    # The key has the opposite meaning of the option, a switch that says no: `cache = false` is --no-cache.
    negates: bool = False
    # A deploy treats the value as if it were typed, so the run's record repeats it.
    typed: bool = False


class Term(NamedTuple):
    """One condition of a rule: one of the options `names` is given, with one of `texts` if there are any.

    With `absent`, the condition is that none of them is given like that.
    """

    names: list[str]
    texts: list[str]
    absent: bool


@dataclass(frozen=True)
class Rule:
    """With which other options an option is refused (together.py), and `why`.

    `when`: the conditions, all of which must hold: `wait` or `backend|workers` (one of them is given), `!run` (it is
    not given, and the option needs it), `to=jobset|trainjob` (it has one of these texts). `hint`: what to type;
    empty: the error says to leave out one of the options.
    """

    when: str
    why: str
    hint: str = ""
    # The commands for which the rule holds, separated by blanks; empty: all commands that have the option.
    on: str = ""

    @property
    def terms(self) -> list[Term]:
        """The conditions in `when`."""
        parts = re.findall(r"(!?)([\w|]+)=?([\w|]*)", self.when)
        return [Term(names.split("|"), texts.split("|") if texts else [], bool(no)) for no, names, texts in parts]

    @property
    def needs(self) -> list[str]:
        """The other options that the option needs: one of each condition."""
        return [name for term in self.terms if term.absent for name in term.names]


@dataclass(frozen=True)
class OptionRow:
    """What an option is, apart from its name and default."""

    # What it means for most commands that have it; for a key without a command, what it means in the file.
    help: str
    # By command, what it means there. Commands that are not listed do not have the option.
    helps: Mapping[str, str]
    key: Key | None = None
    # Its name in the Python API, if that differs; None: the Python API sets it in another way (api.py).
    python: str | None = ""
    # Which other options it excludes or needs. A rule about two options is in the row of one of them.
    rules: tuple[Rule, ...] = ()
    # Whether a resume repeats the option.
    again: bool = True
    # Turns one typed text into the value that the program uses; None refuses it. The error then ends with `refusal`; in
    # `hint`, {command} is the command that was typed.
    read: Callable[[str], Any] | None = None
    refusal: str = ""
    hint: str = ""
    # The command for which it is a single text, although other commands take several.
    single_for: str = ""
    # The letter of its short form: `-H`. A letter means the same in every command that has it.
    letter: str = ""
    # Each text may hold several values, separated by commas. If the option is a single text and is given several times,
    # the texts are joined with commas.
    commas: bool = False
    # If the option is a single text and is given several times, it is refused, because all of them may be meant. Of any
    # other single text the last one counts, as for other programs: an alias may have given the first.
    once: bool = False
    # Only a container engine can provide it: a run on hosts without an engine is refused.
    engine: bool = False


def option(help: str, on: str = "", start: Any = "", *, of: Mapping[str, str] | None = None, **more: Any) -> Any:
    """A row of the table. `on`: the commands that take the option with this help, separated by blanks.

    `of`: other help texts, by the commands to which they apply. `start`: the default, which also decides what the
    option is: a text (""), several texts (()), or a switch (False).
    """
    helps = dict.fromkeys(on.split(), help)
    for commands, other in (of or {}).items():
        helps |= dict.fromkeys(commands.split(), other)
    return field(default=start, metadata={"row": OptionRow(help, helps, **more)})


_SCRIPT = 'your script and its arguments, as you type it: "train.py --lr 3e-4", "torchrun ...", "bash run.sh" '
_SECRET_FILE = (
    "a file on this machine that the ranks can read as /run/secrets/NAME, held in memory: NAME=FILE; repeatable "
    "(default: none)"
)
_WAITED = "how long to wait for a lost host or a broken link before the run ends: 90s, 10m, 1h "
_RECORDED = (
    "the hosts: user@a:port,b (default: the hosts in cluster.toml, else those in the run's record on this machine)"
)
_BESIDE = "on the node of this rank"
_ROLES_ALONE = Rule(
    "role",
    "a role needs all of its nodes",
    "`separate = true` and `restart = 3` let each node of a role start again without the others",
)
_SLURMS_REQUEUE = Rule("slurm", "Slurm requeues a job that lost a node", on="deploy")
_OF_SLURM = Rule("!slurm", "it is for a run on Slurm, instead of one on --hosts", "leave it out", "deploy")
_TO_PODS, _TO_SBATCH = "to=jobset|trainjob", "!to=jobset|trainjob"
_OF_REAL_HOSTS = "one is for real hosts, the other for this machine"
_OF_HOSTS = Rule("backend|workers", _OF_REAL_HOSTS, on="preflight")
_NO_SCRIPT, _NONE_OF_IT = "!script|each|role", "Muster's own trainer does not support it"
_OF_A_SCRIPT = Rule(_NO_SCRIPT, _NONE_OF_IT, "leave it out", "deploy up agent export")
_OF_A_SCRIPT_HERE = Rule(_NO_SCRIPT, _NONE_OF_IT, "leave it out", "up")
EACH_EXAMPLE = '--each "main.py --rank {node_rank} --world-size {nodes} --dist-url tcp://{master}:{port}"'
_ONE_COMMAND = "let your own script choose what each node does: --each 'bash part.sh {node_rank} {nodes} {master}'"
_SECRET_THERE = "put it into a file there that only you can read: --setup 'source ~/.secrets'"
_NOT_YET = "Muster does not support both together yet"


def _on_slurm(why: str, hint: str = "") -> Rule:
    """A rule for an option that a run on Slurm cannot have."""
    return Rule("slurm", why, hint, "deploy")


@dataclass(frozen=True)
class Options:
    """What the user asked for, as it was typed. A resume repeats options in the order of these fields."""

    hosts: str = option(
        "the hosts: user@a:port,b (default: the hosts in cluster.toml)",
        "deploy ray push bootstrap clean gpus login preflight trust unlock",
        again=False,
        of={
            "leave": "the hosts to take out: user@a:port,b (required)",
            "join": "the hosts to bring in: user@a:port,b (required)",
            "why": "where the run is: user@a:port,b (default: as the run's record on this machine says)",
            "tensorboard": "where the run is: user@a:port,b (default: as the run's record on this machine says; "
            "this machine once the run has ended)",
            "runs": "list the runs on these hosts instead: user@a:port,b (default: this folder's)",
            "board": "show the runs on these hosts too: user@a:port,b (default: only this folder's)",
            "down": "clean up these hosts: user@a:port,b (default: this machine; with --run but without "
            "--delete, the hosts in that run's record on this machine)",
            "attach resume exec fetch logs port shell status stop": _RECORDED,
        },
        python=None,
        letter="H",
        commas=True,
        rules=(_on_slurm("Slurm chooses the nodes", "--sbatch=--nodelist=n1,n2 names them"), _OF_HOSTS),
    )
    cluster: str = option(
        "a file like cluster.toml (default: cluster.toml in this folder, if there is one)",
        "deploy ray attach resume push bootstrap clean gpus login preflight trust unlock exec fetch logs port shell "
        "status stop join leave",
        again=False,
        of={
            "why": "where the run is: a file like cluster.toml (default: this machine)",
            "tensorboard": "where the run is: a file like cluster.toml (default: as for --hosts)",
            "runs": "list the runs on the hosts of this cluster.toml (default: this folder's)",
            "board": "show the runs on the hosts of this cluster.toml too (default: only this folder's)",
            "down": "clean up the hosts of this cluster.toml (default: this machine)",
            "export": "the file to take the roles from (default: cluster.toml in this folder, if there is one)",
        },
        python=None,
        rules=(
            _on_slurm("it lists hosts, and Slurm chooses its own"),
            Rule(_TO_SBATCH, "it lists hosts, and Slurm chooses its own", "leave it out", "export"),
            _OF_HOSTS,
        ),
    )
    run: str = option(
        "the run's id (default: date, time and the script's name)",
        "deploy ray up",
        again=False,
        of={
            "resume": "the run's id, or latest (default: latest)",
            "report": "latest, an id or a path (default: latest)",
            "status": "show this run only, or the latest (default: all runs)",
            "stop": "the run's id, or latest (default: the only run on these hosts; without hosts, the only one "
            "here that has not ended)",
            "fetch": "the run's id, or latest (default: the only run on these hosts; without hosts, the latest "
            "on hosts)",
            "join leave": "the run's id, or latest (default: the only run that has not ended there)",
            "why": "the run's id, or latest (default: on named hosts the only run, else the latest)",
            "tensorboard": "the run's id, or latest (default: on named hosts the only run that has not ended, else "
            "the latest)",
            "down": "this run only (default: all of yours)",
            "attach exec logs port shell": "the run's id, or latest (default: the only run that has not ended; "
            "without hosts, the latest on "
            "hosts)",
            "agent": "the run folder's name in runs/ (default: slurm-JOB under Slurm)",
            "export": "the run's name (default: the script's, or muster-trainer)",
        },
        rules=(Rule("resume", "the run that continues already has an id", "leave out --run", "deploy up"),),
        once=True,
    )
    slurm: str = option(
        "a login node of Slurm, user@login:port: submit a job there instead of using hosts (default: none)",
        "deploy",
        again=False,
        of={"export": 'more options for sbatch: "--partition=a100 --cpus-per-task=64" (default: none)'},
        python=None,
        rules=(
            Rule(
                _TO_PODS,
                "it holds options of sbatch",
                "write them into the printed file, in the form that your cluster expects",
                "export",
            ),
        ),
    )
    to: str = option(
        "what the file is for: sbatch, jobset or trainjob (default: sbatch)",
        "export",
        again=False,
        read=values.one_of("sbatch", "jobset", "trainjob"),
        refusal="neither sbatch, jobset nor trainjob",
        hint="--to sbatch",
        rules=(
            Rule(
                f"!image {_TO_PODS}",
                "Kubernetes needs to know which image to run",
                "--image registry.example/team/train:1, an image built on Muster's own that contains the folder",
                "export",
            ),
        ),
    )
    nodes: str = option(
        "with --slurm: how many nodes (default: 1)",
        "deploy",
        of={"export": "how many hosts (default: 1)"},
        read=values.digits(1, 99999),
        refusal="not a number from 1",
        hint="--nodes 2",
        letter="N",
        rules=(
            _OF_SLURM,
            Rule("role !script|each", "each role says how many nodes it has", "--role NAME=N:COMMAND", "export"),
        ),
    )
    sbatch: str = option(
        'with --slurm: more options for sbatch: "--partition=a100 --cpus-per-task=64" (default: none)',
        "deploy",
        rules=(_OF_SLURM,),
        once=True,
    )
    setup: tuple[str, ...] = option(
        'with --slurm: a shell command to run first: "source venv/bin/activate"; the job ends if it fails; '
        "repeatable (default: none)",
        "deploy",
        (),
        of={
            "export": 'a shell command to run first: "source venv/bin/activate"; the job ends if it fails; repeatable '
            "(default: none)"
        },
        rules=(
            _OF_SLURM,
            Rule(_TO_PODS, "a pod starts from the image only", "do that when you build the image", "export"),
        ),
    )
    shared: str = option(
        "with --slurm: a folder that the login node and the nodes share, for the run's files (default: your "
        "home folder there)",
        "deploy",
        of={
            "export": "with --to jobset or trainjob: the PersistentVolumeClaim that keeps the run's files "
            "(default: none; the files are lost with the pods)"
        },
        rules=(
            _OF_SLURM,
            Rule("resume", "the run that continues already has a folder there", "leave out --shared", "deploy"),
            Rule(_TO_SBATCH, "a Slurm job keeps its files in its own folder", "leave it out", "export"),
        ),
    )
    container: str = option(
        "with --slurm: pyxis or apptainer, how Slurm runs --image (default: no container)",
        "deploy",
        of={"export": "pyxis or apptainer: how Slurm runs --image (default: no container)"},
        read=values.one_of("pyxis", "apptainer"),
        refusal="neither pyxis nor apptainer",
        hint="--container pyxis --image registry#team/muster-trainer:gpu",
        rules=(
            _OF_SLURM,
            Rule(_TO_PODS, "pods are containers", "leave it out", "export"),
            Rule(
                "!image", "it says how Slurm runs an image", "--image registry#team/muster-trainer:gpu", "deploy export"
            ),
        ),
    )
    script: str = option(
        _SCRIPT + "(default: none; --args asks for Muster's own trainer)",
        "deploy agent export",
        again=False,
        of={
            "up": _SCRIPT + "(default: in Muster's checkout its own trainer, which --args asks for elsewhere)",
            "ray": "the driver, with its arguments (default: none: the cluster stays until muster stop)",
        },
        key=Key("script", values.words_of_shell, 'a command of one line: "train.py --lr 3e-4"', FREE, typed=True),
        python=None,
        once=True,
    )
    each: str = option(
        "run this once on each node instead of once per rank: a command that starts its ranks itself, as mp.spawn "
        "does; {node_rank}, {nodes}, {ranks}, {master} and {port} are filled in (default: none)",
        "deploy up agent export",
        again=False,
        rules=(Rule("script", "both say what runs", f"give one: {EACH_EXAMPLE}"),),
        once=True,
    )
    role: tuple[str, ...] = option(
        "a separate command for some of the nodes: NAME=N:COMMAND, or NAME=HOST+HOST:COMMAND; settings go "
        "before the colon, each after a comma; repeatable (default: the roles in cluster.toml, else one command "
        "for all nodes)",
        "deploy up export",
        (),
        rules=(
            Rule(
                "backend=docker",
                "all containers on this machine run the same command",
                "as processes, nodes can have roles: --backend processes",
                "up",
            ),
            _on_slurm("all nodes of a Slurm job run the same command", _ONE_COMMAND),
            Rule(_TO_SBATCH, "all nodes of a Slurm job run the same command", _ONE_COMMAND, "export"),
        ),
    )
    args: str = option(
        "options for Muster's own trainer, if there is no --script (default: none)",
        "deploy agent export",
        again=False,
        of={"up": 'options for the trainer, in one string: --args="--recipe text --steps 100" (default: none)'},
        key=Key("args", values.line, "options for Muster's own trainer, in one string", FREE, typed=True),
        python="arguments",
        rules=(
            Rule(
                "script|each",
                "it holds options for Muster's own trainer",
                "put the script's own options after the script",
            ),
            Rule(
                "role", "Muster's own trainer takes no part in roles", "give the role a script: --role NAME=N:COMMAND"
            ),
        ),
        once=True,
    )
    folder: str = option(
        "the folder to send (default: this folder if there is a script, else none)",
        "deploy ray",
        of={
            "up": "the folder that holds your script (default: this folder)",
            "push": "the folder to send (default: the one in cluster.toml, or none)",
        },
        key=Key("folder", values.path_from, "the path of a folder", FREE, relative=True, exists="folder", typed=True),
        rules=(_OF_A_SCRIPT_HERE,),
    )
    image: str = option(
        "the image to run in (default: muster-trainer if it was built here, else PyTorch's own)",
        "deploy ray",
        of={
            "preflight": "check from inside this image (default: the one muster deploy would use)",
            "push": "the image to send (default: muster-trainer if it was built here, else PyTorch's own)",
            "export": "an image built on Muster's own (default: no container; pods need one)",
        },
        key=Key("image", values.word, "the name of an image"),
        rules=(
            Rule(
                "slurm !container",
                "Slurm needs to know what runs the image",
                "--container pyxis, or apptainer",
                "deploy",
            ),
            Rule(
                f"!container {_TO_SBATCH}",
                "Slurm needs to know what runs the image",
                "--container pyxis, or apptainer",
                "export",
            ),
            _OF_HOSTS,
        ),
        engine=True,
    )
    dockerfile: str = option(
        "first build the image on this machine, from this file and the folder that it is in (default: none)",
        "deploy ray push",
        key=Key(
            "dockerfile",
            values.path_from,
            "the path of a Dockerfile",
            "{} is built on this machine, with the folder that it is in",
            relative=True,
            exists="file",
        ),
        read=Path,
        rules=(
            _on_slurm(
                "Slurm runs an image that exists already",
                "build the image first: --container apptainer --image train.sif",
            ),
            Rule("image", "both say which image to use"),
        ),
        engine=True,
    )
    nproc: str = option(
        "ranks of each node: auto (one for each GPU, or one) or a number (default: auto)",
        "deploy up agent export",
        read=lambda text: values.processes(values.or_number(text)),
        refusal="neither auto nor a number from 1 to 1024",
        hint="--nproc auto",
        key=Key("processes", values.processes, '"auto" or a number from 1', FREE),
        letter="n",
        rules=(_OF_A_SCRIPT_HERE,),
    )
    requirements: str = option(
        "first install the packages from this file in the folder: a requirements.txt, pyproject.toml, "
        "uv.lock or a script's `# /// script`; `no` installs none (default: the one in the folder, if there is one)",
        "deploy ray up push",
        key=Key("requirements", values.requirements, 'a path in the folder, or "no"', FREE),
        rules=(
            _on_slurm("you install packages once, on the cluster", "--setup 'source venv/bin/activate'"),
            Rule(_NO_SCRIPT, _NONE_OF_IT, "leave it out", "deploy up"),
        ),
    )
    restarts: str = option(
        "how many times to start the script again if it fails or is killed; it keeps the files that it wrote "
        "(default: 0, because only a script that finds its own checkpoint can continue)",
        "deploy up agent export",
        key=Key("restarts", values.whole_text(0), "a number from 0 to 9999", FREE, typed=True),
        read=values.digits(0, 9999),
        refusal="not a number from 0 to 9999",
        hint="{command} ... --restarts 3",
        rules=(_OF_A_SCRIPT,),
    )
    restart_with: str = option(
        'arguments to add when the script starts again, if it resumes only with them: "--resume", '
        '"--init_from=resume" (default: none)',
        "deploy up agent export",
        read=values.words_of_shell,
        refusal="not words that a shell could read",
        hint="{command} ... --restart-with='--init_from=resume'",
        key=Key("restart_with", values.words_of_shell, "words that a shell could read, on one line", FREE),
        rules=(
            _OF_A_SCRIPT,
            Rule(
                "min_nodes",
                "a node may start for the first time when the others start again",
                "let the script find its checkpoint itself, without --restart-with",
            ),
        ),
        once=True,
    )
    gpus: str = option(
        "GPUs to use on each host, or on this machine: auto (all), how many free ones (2; 0 for none), or which "
        "ones (0,3; a single one: 3,) (default: auto)",
        "deploy ray up",
        of={"export": "how many GPUs to use on each host (default: as --slurm says)"},
        read=values.gpus_flag,
        refusal="not auto, a number of GPUs, or a list of GPUs",
        hint="--gpus auto (all), --gpus 2 (any two), or --gpus 0,3 (these two)",
        key=Key("gpus", values.gpus, values.GPUS, FREE),
        letter="g",
        rules=(_OF_A_SCRIPT_HERE,),
    )
    wait: bool = option(
        "if the hosts or enough of their GPUs are busy, let the nodes wait on the hosts until they are free; "
        "this machine may sleep meanwhile (without --wait, the deploy is refused)",
        "deploy",
        False,
        again=False,
        rules=(
            _on_slurm("a job waits in Slurm's queue anyway"),
            Rule(
                "role",
                "all hosts of such a run must be free when it starts",
                "start it once they are free: `muster gpus` shows who uses them",
            ),
            Rule("min_nodes|overlay", _NOT_YET),
        ),
    )
    max_hours: str = option(
        "stop the run gracefully, with time to save, after this many hours (2.5); its verdict is then `stopped` "
        "(default: none)",
        "deploy ray up agent export",
        read=values.hours_flag,
        refusal="not a number of hours above 0",
        hint="{command} ... --max-hours 2.5",
        key=Key("max_hours", values.hours, "a number of hours, above 0", FREE),
        rules=(
            Rule(
                _TO_PODS,
                "the run would stop with code 75, and another pod would continue it",
                "set activeDeadlineSeconds in the printed file",
                "export",
            ),
        ),
    )
    grace: str = option(
        "how long the ranks may take to save when the run is asked to stop, before they are killed: 90s, 5m "
        "(default: 20s)",
        "deploy ray up agent export",
        read=values.grace,
        refusal="not a time with its unit, up to 24h",
        hint="{command} ... --grace 90s",
        key=Key("grace", values.grace, 'a time with its unit, up to 24h: "90s" or "5m"', FREE),
    )
    wait_lost: str = option(
        _WAITED + "(default: 10m)",
        "deploy ray",
        of={"attach": _WAITED + "(default: as the run was started)"},
        read=values.wait,
        refusal="not a time with its unit",
        hint="--wait-lost 90s (or 10m, 1h)",
        key=Key("wait_lost", values.wait, 'a time with its unit: "90s", "10m" or "1h"', FREE),
        rules=(_on_slurm("Slurm itself ends and requeues a job that lost a node"),),
    )
    min_nodes: str = option(
        "keep training while at least this many nodes are left, whichever are lost; it must be more than half "
        "of the nodes (default: all nodes are needed)",
        "deploy up",
        key=Key("min_nodes", values.whole_text(1), "a number of nodes, from 1", FREE),
        rules=(
            Rule(
                "backend=docker",
                "on this machine, containers cannot continue without each other",
                "as processes, they can: --backend processes",
                "up",
            ),
            _SLURMS_REQUEUE,
            _ROLES_ALONE,
        ),
    )
    spare: str = option(
        "standby hosts: with --min-nodes, one of them takes the place of a lost host (default: none)",
        "deploy",
        commas=True,
        rules=(
            _SLURMS_REQUEUE,
            _ROLES_ALONE,
            Rule(
                "!min_nodes",
                "that says how many hosts must be left, more than half of them",
                "--min-nodes 2; or leave it out",
            ),
        ),
    )
    arbiter: str = option(
        "a host that votes on who trains, but does not train: with --min-nodes, one of two hosts, or two of four, can "
        "then continue alone (default: none)",
        "deploy",
        rules=(
            _SLURMS_REQUEUE,
            _ROLES_ALONE,
            Rule("script|each", "so far, only Muster's own trainer supports an arbiter", "leave it out"),
            Rule(
                "!min_nodes",
                "that says how many hosts must be left; with an arbiter, half of them are enough",
                "--min-nodes 1; or leave it out",
            ),
        ),
    )
    on_end: str = option(
        "a command to run once in the run's image when the run has ended, whatever its verdict, with MUSTER_END "
        "and other variables set; or a URL that gets a JSON POST (default: none)",
        "deploy up",
        read=values.line,
        refusal="the command must fit on one line",
        hint="put it into a file in the folder: --on-end 'sh end.sh'",
        key=Key("on_end", values.scalar, "a command of one line, or a URL", "{} once the run has ended"),
        rules=(
            _on_slurm("Slurm itself sends mail", "--sbatch='--mail-type=END,FAIL'"),
            Rule("role", "the run ends when one of its roles ends", "let the command of that role do it: bash run.sh"),
            Rule("min_nodes|overlay", _NOT_YET),
        ),
        once=True,
    )
    folder_limit: str = option(
        "refuse to send a folder larger than this, such as 4g (default: 256m, because a larger folder usually "
        "holds data, which --data sends)",
        "deploy ray up push",
        read=values.size,
        refusal="not a size",
        hint="--folder-limit 4g",
        key=Key("folder_limit", values.size, 'a size such as "4g"', FREE),
        rules=(_OF_A_SCRIPT_HERE,),
    )
    env: tuple[str, ...] = option(
        "an environment variable for the ranks: NAME=VALUE; separate several with commas, or repeat the option "
        "(default: none)",
        "deploy ray up export",
        (),
        key=Key("environment", values.scalar, "a string of one line or a number", FREE, named=True),
        letter="e",
        rules=(_OF_A_SCRIPT_HERE,),
    )
    secret: tuple[str, ...] = option(
        "a secret variable, from this shell (NAME) or from a file (NAME=FILE); hosts never show it; repeatable "
        "(default: none)",
        "deploy ray up attach resume",
        (),
        of={
            "push": "a secret that must never be sent, given as for deploy; repeatable (default: none)",
            "export": "with --to jobset or trainjob: a variable from the cluster's Secret, NAME=SECRET, which has the "
            "key NAME; repeatable (default: none)",
        },
        key=Key(
            "secrets",
            values.secret_from,
            '"NAME" or { name = "NAME", file = "path" }, with as_file = true for a file; never the value itself',
            relative=True,
            secret=True,
        ),
        python="secrets",
        rules=(
            _on_slurm("a Slurm job gets no secrets from this machine", _SECRET_THERE),
            Rule(_TO_SBATCH, "a Slurm job gets no secrets from this machine", _SECRET_THERE, "export"),
            _OF_A_SCRIPT_HERE,
        ),
    )
    mount: tuple[str, ...] = option(
        "mount a folder of each host for the ranks: /source:/target; add :ro to make it read-only, or :create "
        "to make the folder where it is missing; repeatable (default: none)",
        "deploy ray",
        (),
        of={
            "export": "mount a folder of each host in the container: /source:/target; repeatable (default: the "
            "job's folder)"
        },
        read=values.mount,
        refusal=f"not {values.MOUNT}",
        hint="--mount /data:/data:ro, and --mount again for another",
        key=Key("mounts", values.mount, values.MOUNT),
        python="mounts",
        rules=(
            Rule(
                "slurm !container",
                "without a container, a job sees the cluster's disks as they are",
                "leave it out",
                "deploy",
            ),
            Rule(
                f"!container {_TO_SBATCH}",
                "without a container, a job sees the cluster's disks as they are",
                "leave it out",
                "export",
            ),
        ),
    )
    data: tuple[str, ...] = option(
        "give the ranks a folder of this machine, read-only: FOLDER:/target; each host gets it once, and keeps "
        "it for later runs; repeatable (default: none)",
        "deploy ray push",
        (),
        of={
            "up": "give the ranks a folder of this machine, read-only: FOLDER:/target; repeatable (default: none)",
            "clean": "remove the data with this digest, or `all`; repeatable (default: none)",
        },
        read=values.data,
        refusal=f"not FOLDER:/target, where the target is {values.DATA}",
        hint="--data ~/corpus:/data, and --data again for another",
        rules=(
            _on_slurm("the nodes of a job share a disk", "put the data there, and leave the option out"),
            _OF_A_SCRIPT_HERE,
        ),
    )
    keep: tuple[str, ...] = option(
        "a path in the container to keep with the run, like the script's folder and home; repeatable (default: none)",
        "deploy ray up",
        (),
        key=Key("keep", values.keep, values.KEEP, FREE),
        read=values.keep,
        refusal=f"not {values.KEEP}",
        hint="--keep /data/out, and --keep again for another",
        of={"preflight": "also write everything that the hosts answered to this file (default: none)"},
        single_for="preflight",
        rules=(
            Rule(
                "backend=processes",
                "without a container, that path is on this machine and stays there anyway",
                "leave out --keep, or run in containers: --backend docker",
                "up",
            ),
            _on_slurm("a job writes to the cluster's disks, which keep it anyway"),
            _OF_A_SCRIPT_HERE,
        ),
        engine=True,
    )
    include: tuple[str, ...] = option(
        "send this file even though .gitignore excludes it or it looks like a credential; repeat the option for "
        "several, or separate them with commas (default: none)",
        "deploy ray up push",
        (),
        commas=True,
        read=values.inside,
        refusal="not a path in the folder",
        hint="leave it out, or copy it into the folder",
        key=Key("include", values.inside, 'a path in the folder: "data/val.bin"'),
        rules=(_OF_A_SCRIPT_HERE,),
    )
    env_file: tuple[str, ...] = option(
        "a file of variables for the ranks, such as .env; each value is treated as a secret; repeatable "
        "(default: none)",
        "deploy ray up attach resume",
        (),
        of={"push": "a file such as .env, whose values must never be sent; repeatable (default: none)"},
        key=Key(
            "env_file",
            values.path_from,
            'the path of a file of variables: ".env"',
            relative=True,
            exists="file",
            alone=True,
        ),
        python="env_files",
        rules=(
            _on_slurm(
                "a Slurm job gets no secrets from this machine",
                "put it on the cluster, where only you can read it: --setup 'set -a; source ~/.env && set +a'",
            ),
            _OF_A_SCRIPT_HERE,
        ),
    )
    secret_file: tuple[str, ...] = option(
        _SECRET_FILE,
        "deploy ray attach resume",
        (),
        of={"up": _SECRET_FILE + "; only in containers"},
        python="secret_files",
        rules=(
            Rule(
                "backend=processes",
                "without a container, there is no /run/secrets",
                "the script can read the file where it is; or pass it as a variable, with --secret NAME=FILE; "
                "or use --backend docker",
                "up",
            ),
            _on_slurm("a job can read your home folder", "put it on the cluster, where only you can read it"),
            _OF_A_SCRIPT_HERE,
        ),
        engine=True,
    )
    overlay: bool = option(
        "if no network connects all hosts, make an encrypted one for this run: over one UDP port, and through a "
        "third host where two cannot reach each other",
        "deploy ray",
        False,
        key=Key(
            "overlay", values.yes_or_no, "true or false", "the run makes its own network, over a port on the hosts"
        ),
        rules=(_on_slurm("Slurm's nodes already share a network"), Rule("min_nodes", _NOT_YET)),
        engine=True,
    )
    no_cache: bool = option(
        "do not keep downloads and compiled kernels for the next run",
        "deploy ray up",
        False,
        key=Key("cache", values.yes_or_no, "true or false", FREE, negates=True),
        rules=(_on_slurm("Muster keeps no caches there"), _OF_A_SCRIPT_HERE),
    )
    separate: bool = option(
        "let each rank train alone, without a process group; without this option, a run that does so fails",
        "deploy up",
        False,
        key=Key("separate", values.yes_or_no, "true or false", FREE),
        rules=(_OF_A_SCRIPT,),
    )
    no_observe: bool = option(
        "do not watch the script from inside its ranks; Muster then shows no steps, no loss and no stacks",
        "deploy up",
        False,
        key=Key("observe", values.yes_or_no, "true or false", FREE, negates=True, typed=True),
        rules=(_OF_A_SCRIPT_HERE,),
    )
    style: str = option(
        "slurm or mpi: for a script that reads them, also set SLURM_PROCID or OMPI_COMM_WORLD_RANK and the like "
        "for each rank (default: only torchrun's variables)",
        "deploy up",
        of={
            "preflight": "what starts the run: muster (muster deploy), torchrun (typed by you), slurm or mpi "
            "(default: muster)"
        },
        rules=(_OF_A_SCRIPT, Rule("backend|workers style=torchrun|slurm|mpi", _OF_REAL_HOSTS, on="preflight")),
    )
    rank: str = option(
        "which ranks' output to show: one number, several with commas, or all (default: 0)",
        "deploy up attach resume",
        again=False,
        of={
            "logs": "only this rank's lines, from its own log if it has one (default: all ranks)",
            "exec": f"{_BESIDE} only (default: on every host of the run)",
            "port shell": f"{_BESIDE} (default: 0)",
            "tensorboard": f"{_BESIDE}, with the event files of its host (default: 0)",
        },
        key=Key("rank", values.scalar, 'a rank, several with commas, or "all"', FREE, typed=True),
        python=None,
        letter="r",
        commas=True,
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
    detach: bool = option(
        "return once the run has started", "deploy ray resume", False, again=False, python=None, letter="d"
    )
    dry_run: bool = option(
        "print what each host would do, and do nothing",
        "deploy ray resume join leave",
        False,
        again=False,
        of={"bootstrap": "print the commands, and do nothing", "push": "say what would be sent, and send nothing"},
        python=None,
    )
    force: bool = option(
        "start even if preflight refuses; the run's record says what was ignored",
        "deploy ray resume",
        False,
        again=False,
        rules=(_on_slurm("no preflight runs before a job"),),
    )
    workers: str = option(
        "nodes in addition to the master (default: 0 with --script, else 2; with --resume, as many as before)",
        "up",
        again=False,
        of={
            "preflight": "with --backend: nodes in addition to the master (default: 2)",
            "demo": "nodes in addition to the master (default: 2)",
        },
        read=values.digits(0, 255),
        refusal="not a number from 0 to 255",
        hint="give the number of nodes in addition to the master: --workers 2",
        rules=(Rule("role", "each role says how many nodes it has", "--role NAME=N:COMMAND"),),
    )
    backend: str = option(
        "auto, docker or processes (default: auto, which is docker in Muster's checkout if an engine answers "
        "and a script finds no GPUs, else processes)",
        "up demo",
        again=False,
        of={"preflight": "check this machine, for `muster up`: auto, docker or processes (default: check real hosts)"},
    )
    json: bool = option(
        "write JSON lines to standard output",
        "deploy ray attach push bootstrap clean gpus login trust unlock exec fetch logs port status stop join "
        "leave tensorboard why board",
        False,
        again=False,
        of={
            "compare explain": "write one JSON object",
            "preflight": "write the verdict as one JSON object to standard output",
            "down": "write one JSON object per host; without --hosts, one that says what was deleted",
            "runs": "write one JSON object per run",
            "up resume demo": "write events and the result as JSON lines to standard output",
        },
        python=None,
    )
    python: str = option(
        "with a --style other than muster: the Python on the hosts that has your torch (default: python3)",
        "preflight",
        again=False,
        rules=(
            Rule(
                "!style=torchrun|slurm|mpi",
                "muster deploy uses the image's Python",
                "--style torchrun or --style slurm or --style mpi",
            ),
        ),
    )
    size: str = option(
        "how many bytes the rehearsal's long all_reduce sums (default: 20m)",
        "preflight",
        again=False,
        read=values.size_within(4, 16 << 30),
        refusal="not a size up to 16g",
        hint="--size 200m",
        rules=(Rule("backend|workers|quick", "it belongs to the rehearsal between real hosts"),),
    )
    endpoint: str = option(
        "where the nodes meet: an address or a name (default: the one muster deploy chooses)",
        "preflight",
        again=False,
        rules=(_OF_HOSTS,),
    )
    port: str = option(
        "the rendezvous port (default: 29500, or the next free one)",
        "preflight",
        again=False,
        read=values.digits(1, 65535),
        refusal="not a port",
        hint="--port 29500, or leave it out",
        of={"tensorboard": "the port here (default: 6006)", "board": "the port here (default: a free one)"},
    )
    collectives: str = option(
        "the collectives to predict and rehearse: gloo, nccl, or auto, which is nccl if the hosts have GPUs "
        "(default: auto)",
        "preflight",
        again=False,
        read=values.one_of("auto", "gloo", "nccl"),
        refusal="neither auto, gloo nor nccl",
        hint="--collectives nccl",
    )
    nc: bool = option(
        "also print what `nc -vz` would print, from each host to each other host", "preflight", False, again=False
    )
    bandwidth: bool = option(
        "measure the bandwidth between every pair of hosts, and print it",
        "preflight",
        False,
        again=False,
        rules=(_OF_HOSTS,),
    )
    quick: bool = option("skip the rehearsal at the end", "preflight", False, again=False)
    strict: bool = option("end with code 1 if there are warnings", "preflight", False, again=False)
    html: str = option(
        "also write a page to this file: the verdict, who reaches whom, each host (default: none)",
        "preflight",
        again=False,
    )
    runs: tuple[str, ...] = option(
        "remove this run and everything that it wrote; `all`: every run that has ended; repeatable (default: none)",
        "clean",
        (),
        again=False,
    )
    images: bool = option("remove the images that your pushes sent", "clean", False, again=False)
    folders: bool = option("remove the folders that your pushes sent", "clean", False, again=False)
    packages: bool = option("remove the installed packages", "clean", False, again=False)
    caches: bool = option(
        "remove what scripts and installations have downloaded and compiled", "clean", False, again=False
    )
    older: str = option(
        "remove only items that have not changed for this long: 30d, 12h (default: any age)",
        "clean",
        again=False,
        rules=(
            Rule(
                "!runs|images|folders|packages|caches|data",
                "it only limits what another option removes, by age",
                "muster clean ... --runs all --older 30d",
            ),
        ),
    )
    yes: bool = option(
        "do not ask",
        "clean bootstrap",
        False,
        again=False,
        of={"unlock": "do not ask, even if the deploy that holds the lock is still running"},
        letter="y",
    )
    delete: bool = option(
        "with --run: also remove everything that this run wrote there; the run must have ended",
        "down",
        False,
        again=False,
        rules=(Rule("!run", "nothing was deleted", "muster down ... --run ID --delete; `muster runs` lists the ids"),),
    )
    only: tuple[str, ...] = option(
        "copy only what matches: 'work/outputs/*'; repeatable (default: everything except downloads and sent "
        "files that did not change)",
        "fetch",
        (),
        again=False,
    )
    state: str = option(
        "then join the shards of the newest checkpoint, from several hosts, into one file: state.pt, or "
        "model.safetensors for the weights only (default: none)",
        "fetch",
        again=False,
    )
    follow: bool = option("continue until the run ends, or Ctrl-C", "logs", False, again=False, letter="f")
    grep: str = option(
        "only lines that match this extended regular expression (grep -E), searched on the hosts (default: all lines)",
        "logs",
        again=False,
        once=True,
    )
    since: str = option(
        "only newer lines: 10m, or a time such as 2026-11-21T03:00:00Z (default: all)", "logs", again=False
    )
    no_open: bool = option("print the address instead of opening a browser", "board", False, again=False, python=None)
    stacks: bool = option("also print each rank's whole stack", "why", False, again=False)
    now: bool = option("kill it at once, without a checkpoint", "stop", False, again=False)
    end: bool = option("close the connections", "login", False, again=False)
    shell: str = option("bash or zsh (default: your login shell, $SHELL)", "completion", again=False)
    allow_folder: bool = option(
        "allow what this folder's files ask for, such as hosts, secrets and mounts, without a question; Muster "
        "remembers it as if you had answered yes",
        "deploy ray up resume attach push bootstrap clean down exec fetch gpus join leave login logs port preflight "
        "report runs shell status stop tensorboard trust unlock why board export",
        False,
        again=False,
        python=None,
    )
    # Keys that exist only in cluster.toml: no command has them as options.
    shm_size: str = option(
        "shared memory of a container (default: half of the host's memory)",
        key=Key("shm_size", values.matching(values.SIZE), 'a size such as "16g"', FREE),
        engine=True,
    )
    memory: str = option(
        "memory of a container, including its shared memory (default: the host's memory less one twentieth, at least "
        "1 GiB and at most 16 GiB)",
        key=Key("memory", values.matching(values.SIZE), 'a size such as "200g"', FREE),
        engine=True,
    )
    pids: str = option(
        "how many processes and threads a container may have (default: 32768)",
        key=Key("pids", values.whole(64, 4194304), "a number from 64 to 4194304", FREE),
        engine=True,
    )
    user: str = option(
        "the user id of the run's processes on hosts where you log in as root (default: the first id from 60600 "
        "up that no user of these hosts has)",
        key=Key(
            "user",
            values.whole(1, (1 << 31) - 2),
            "a user's number, from 1",
            "user {} owns the run's processes on the hosts",
        ),
        engine=True,
    )


@dataclass(frozen=True)
class Job:
    """What runs on all hosts: the values from cluster.toml, changed by the options that were typed.

    A field has the name of its key in cluster.toml; a host's own `environment` and `mounts` override the job's.
    `wait_lost` is in seconds, `folder_limit` in bytes; None or empty: not given. `spares` and `arbiter` come only from
    typed options.
    """

    image: str | None = None
    dockerfile: Path | None = None
    folder: Path | None = None
    include: tuple[str, ...] = ()
    requirements: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    secrets: tuple[Secret, ...] = ()
    mounts: tuple[Mount, ...] = ()
    keep: tuple[str, ...] = ()
    processes: Literal["auto"] | int = "auto"
    shm_size: str | None = None
    user: int | None = None
    memory: str | None = None
    pids: int | None = None
    separate: bool = False
    gpus: Gpus = "auto"
    folder_limit: int | None = None
    max_hours: str = ""
    grace: float | None = None
    wait_lost: float | None = None
    min_nodes: str = ""
    spares: tuple[str, ...] = ()
    arbiter: str = ""
    on_end: str = ""
    env_file: tuple[Path, ...] = ()
    cache: bool = True
    script: str = ""
    args: str = ""
    restarts: str = ""
    restart_with: str = ""
    rank: str = ""
    observe: bool = True
    overlay: bool = False
    # From the tables [[data]] of the file and from --data.
    data: tuple[Data, ...] = ()
    # The tables [[role]] of the file, each in the form of --role.
    roles: tuple[str, ...] = ()


def row_of(each: Field[Any]) -> OptionRow:
    """The table row of a field of `Options`."""
    row: OptionRow = each.metadata["row"]
    return row


def options_of(command: str) -> list[Field[Any]]:
    """The fields of the options that a command takes."""
    return [each for each in fields(Options) if command in row_of(each).helps]


def keys_of(job: Job) -> set[str]:
    """The names of the options that cluster.toml sets."""
    return {name for name, key in KEYS.items() if getattr(job, key.name) != getattr(Job(), key.name)}


def rules_of(task: str) -> Iterator[tuple[str, Rule]]:
    """The rules of a command, each with the option whose row it is in."""
    for name, row in ROWS.items():
        if task in row.helps:
            yield from ((name, rule) for rule in row.rules if not rule.on or task in rule.on.split())


def flag_of(name: str) -> str:
    """The option as the user types it: `--max-hours`."""
    return f"--{name.replace('_', '-')}"


# Each option as the user types it, for messages: `FLAG.max_hours`. `command_of` (option_words.py) makes whole commands.
FLAG = SimpleNamespace(**{each.name: flag_of(each.name) for each in fields(Options)})
ROWS: Mapping[str, OptionRow] = {each.name: row_of(each) for each in fields(Options)}
# The options that have a key in cluster.toml, in the table's order.
KEYS: Mapping[str, Key] = {name: row.key for name, row in ROWS.items() if row.key}

# The sections of a long help with their options. `--help` shows those before the bar, `--help-all` all of them.
SECTIONS: Mapping[str, str] = {
    "Where": "hosts slurm backend workers | cluster nodes sbatch setup shared container overlay wait spare arbiter",
    "What runs": "folder image nproc gpus | script each role args dockerfile requirements include folder_limit style "
    "python separate no_observe no_cache",
    "What it gets": "env secret mount data | env_file secret_file keep",
    "Restarts and limits": "resume restarts | restart_with min_nodes wait_lost max_hours grace on_end run",
    "This command": "to detach dry_run quick bandwidth html strict | rank json force allow_folder nc size endpoint "
    "port collectives",
}
