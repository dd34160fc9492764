"""`fab deploy --slurm`: its options, and the other commands for a run on Slurm, which they know by its record here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config.inventory import Cluster, Job
from ..config.script import once_a_node, read
from ..core.errors import UsageError
from ..core.names import asked_run
from ..hosts import options as deploy_options
from ..hosts import push as deploy_push
from ..hosts.options import Options
from ..image.folder_look import FolderLook
from ..report.console import Console
from ..report.script_lines import shown_ranks
from ..run import environment, resumable, sbatch_options
from ..run.resumable import Asked
from ..slurm import deploy as slurm_deploy
from ..slurm import known, plan
from ..slurm.backend import Order
from ..slurm.known import Known
from .command import split
from .planned import planned

LOGIN = "a login node of Slurm, user@login:port: submit a job there instead of using hosts (default: none)"
NODES = "with --slurm: how many nodes (default: 1)"
SBATCH = 'with --slurm: more options of sbatch: "--partition=a100 --cpus-per-task=64" (default: none)'
SETUP = (
    'with --slurm: a line of a shell before the run: "source venv/bin/activate"; the job ends if it fails; repeatable '
    "(default: none)"
)
SHARED = "with --slurm: a folder that login node and nodes share, for the run's files (default: the home there)"
CONTAINER = "with --slurm: pyxis or apptainer, how Slurm runs --image (default: no container)"
# What only --slurm has.
ONLY = ("nodes", "sbatch", "setup", "shared", "container")
_REPEATED = ("setup", "mount", "env", "include")
_SWITCHES = ("separate", "no_observe")
# Each of them says what runs: one that is given replaces all of the last start.
_COMMAND = ("script", "each", "args")
_AGAIN = (
    *("slurm", "nodes", "sbatch", "setup", "shared", "container", "image", "mount", "env", "folder", "include"),
    *("folder_limit", "nproc", "gpus", "restarts", "max_hours", "style", "separate", "no_observe", "script", "each"),
    "args",
)


def given(login: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a deploy to Slurm that a program gives. Raises UsageError for one that there is not."""
    known_names = {*_AGAIN, "resume", "run", *plan.refused()} - {"slurm"}
    if strange := sorted(options.keys() - known_names):
        raise UsageError(f"deploy() has no option {strange[0]} on Slurm", f"it has {', '.join(sorted(known_names))}")
    texts = {name: _as_given(name, value) for name, value in options.items()}
    none = dict.fromkeys((*_AGAIN, "resume", "run", "rank"), "")
    return {**none, **texts, "slurm": login, "detach": True, "dry_run": False}


def _as_given(name: str, value: Any) -> Any:
    if name in _REPEATED:
        return [value] if isinstance(value, str) else [str(each) for each in value]
    return value if isinstance(value, bool | tuple | list) else str(value)


def deploy(given: Mapping[str, Any], console: Console) -> int:
    """Submit a job for the options of `fab deploy`. Raises UsageError for those that a job does not have."""
    plan.refuse(given)
    given, resumed = continued(given)
    if Path("cluster.toml").is_file():
        console.note("cluster.toml is about hosts: a run on Slurm takes nothing from it")
    folder = given["folder"] or ("." if given["script"] or given["each"] else "")
    options = Options(script=once_a_node(given["each"], given["script"]), folder=folder, arguments=given["args"])
    options = Options(**{**vars(options), "environment": tuple(given["env"] or ()), "processes": given["nproc"]})
    deploy_options.refuse_open_secrets(options, {})
    limits = (given["nproc"], given["restarts"], given["max_hours"])
    words, own = planned(options.script, given["args"], *limits, "", folder)
    own = {**own, **environment.asked_style(given["style"], bool(options.script)), **_variables(given)}
    own |= deploy_options.environment_of(options)
    plain, command = options.plain()
    for note in command.notes:
        console.note(note)
    if resumed and (other := resumable.other_than(resumed.run_dir, command.words, folder)):
        console.warn(other)
    nodes = _count("--nodes", given["nodes"] or str(command.nodes or 1))
    command.refuse_nodes(nodes, f"--nodes {command.nodes}")
    limit = deploy_options.folder_limit(given["folder_limit"])
    cluster = Cluster((), Job(include=split(given["include"]), folder_limit=limit))
    sent = plain.code(cluster) if folder else None
    choice = deploy_options.choice_of(cluster)
    first = next(iter(plain.script_words()), "-")
    code = FolderLook(sent, choice) if sent else None
    deploy_push.look_through(code, "" if first.startswith("-") else first, console)
    typed = {name: given[name] for name in ("script", "each", "args") if given[name]}
    asked = plan.JobRequest(
        given["slurm"],
        nodes,
        ("python3", "-P", "-m", "trainer.node.agent", *words),
        ("muster", "agent", *(f"--{name}={value}" for name, value in typed.items())),
        own,
        _gpus(given["gpus"]),
        sbatch_options.words_of("--sbatch", given["sbatch"]),
        tuple(given["setup"] or ()),
        given["container"],
        given["image"],
        tuple(given["mount"] or ()),
        given["shared"],
        again(given),
    )
    plan.check(asked)
    if few := sbatch_options.note_of_cpus("--sbatch", asked.sbatch):
        console.note(few)
    ranks = shown_ranks(given["rank"])
    script = tuple(word for word in words[1:]) if options.script else words
    name = asked_run("--run", given["run"] or "")
    return slurm_deploy.deploy(
        Order(asked, sent, choice), name, script, bool(options.script), ranks, console, given["detach"],
        given["dry_run"], resumed,
    )  # fmt: skip


def again(given: Mapping[str, Any]) -> str:
    """The words that deploy the same once more, behind the program's name."""
    made = ["deploy"]
    for name in _AGAIN:
        value, flag = given.get(name), f"--{name.replace('_', '-')}"
        if value is True:
            made.append(flag)
        elif value:
            values = value if name in _REPEATED else [value]
            made += [word for each in values for word in (flag, each)] if name != "sbatch" else [f"{flag}={value}"]
    return shlex.join(made)


def continued(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], Known | None]:
    """The run that --resume names, and the options of its last start with those that are given now before them."""
    if not given["resume"]:
        return given, None
    for name in ("run", "shared"):
        if given[name]:
            raise UsageError(f"--resume and --{name}: the run has its own", f"leave out --{name}")
    script = read(once_a_node(given["each"], given["script"]), Path(given["folder"] or "."))
    run = known.to_resume(given["resume"], Asked(script.words, given["folder"], tuple(shlex.split(given["args"]))))
    typed = {name: value for name, value in given.items() if value}
    if typed.keys() & {*_COMMAND}:
        typed = {**dict.fromkeys(_COMMAND, ""), **typed}
    return {**given, **_earlier(run.again), **typed, "shared": run.shared}, run


def _earlier(again: str) -> dict[str, Any]:
    """The options in the words of `again`."""
    words, options = shlex.split(again)[1:], dict[str, Any]()
    while words:
        flag, _, value = words.pop(0).partition("=")
        name = flag[2:].replace("-", "_")
        if name in _SWITCHES:
            options[name] = True
        elif name in _REPEATED:
            options.setdefault(name, []).append(words.pop(0))
        else:
            options[name] = value or words.pop(0)
    return options


def refuse_alone(given: Mapping[str, Any]) -> None:
    """Raise UsageError for an option that is for --slurm, without it."""
    for name in ONLY:
        if given.get(name):
            raise UsageError(f"--{name}: it is for a run on Slurm, with --slurm in place of --hosts", "leave it out")


def of_run(hosts: str, cluster: str, run: str) -> Known | None:
    """The run on Slurm that a command means: it names no hosts, and the run's record here says Slurm."""
    if hosts or cluster:
        return None
    return known.find(run, newest=not Path("cluster.toml").is_file())


def _variables(given: Mapping[str, Any]) -> dict[str, str]:
    own = {"MUSTER_SEPARATE": "1"} if given["separate"] else {}
    return {**own, "MUSTER_OBSERVE": "0"} if given["no_observe"] else own


def _gpus(text: str) -> int:
    if text in ("", "auto"):
        return 0
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        raise UsageError(f"--gpus {text}: with --slurm a number of GPUs of each node", "--gpus 8")
    return int(text)


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        raise UsageError(f"{name} {text}: not a number from 1", f"{name} 2")
    return int(text)
