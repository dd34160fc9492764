"""`muster deploy --slurm`: turn its options into a job for Slurm, or into the next job of a run to resume."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from ..hosts.start import push as deploy_push
from ..job.cluster import Cluster
from ..job.load import (
    environment_of,
    folder_to_send,
    gpus_of_each_node,
    read_command,
    read_text,
    script_words,
    trainer_words,
    value_of,
    with_roles_of_file,
)
from ..job.option_words import read_again, words_again
from ..job.options import FLAG, Job, Options
from ..job.script import as_given, once_a_node, read, split_words
from ..job.secrets import refuse_open_secrets
from ..job.together import refuse_pairs
from ..report.console import Console
from ..run import environment, sbatch_options
from ..run.files import resumable
from ..run.files.resumable import WantedRun
from ..send.folder.credentials import send_choice_of
from ..send.folder.folder_look import FolderLook
from ..slurm import deploy as slurm_deploy
from ..slurm import plan, recorded_run
from ..slurm.planned import COMMAND, agent_of, planned
from ..slurm.recorded_run import RecordedRun


def deploy(options: Options, console: Console) -> int:
    """Submit a job for the options of `muster deploy`. Raises UsageError for options that a job cannot have."""
    options, resumed = continued(options)
    # A resumed run is checked already: its id and folder come from its record.
    refuse_pairs("deploy", replace(with_roles_of_file(options), resume=""))
    if Path("cluster.toml").is_file():
        console.note("cluster.toml describes hosts: a run on Slurm uses nothing from it")
    folder = options.folder or ("." if options.script or options.each else "")
    asked = replace(options, script=once_a_node(options.each, options.script), folder=folder)
    refuse_open_secrets(asked, {})
    words, own = planned(replace(options, run="", folder=folder))
    own = {**own, **environment.asked_style(options.style), **_variables(options)}
    own |= environment_of(options)
    plain, command = read_command(asked)
    for note in command.notes:
        console.note(note)
    if resumed and (other := resumable.describe_other_script(resumed.run_dir, command.words, folder)):
        console.warn(other)
    nodes: int = read_text("nodes", options.nodes or str(command.nodes or 1))
    command.refuse_nodes(nodes, f"{FLAG.nodes} {command.nodes}")
    cluster = Cluster((), Job(include=value_of(options, "include"), folder_limit=value_of(options, "folder_limit")))
    sent = folder_to_send(plain, cluster)
    choice = send_choice_of(cluster)
    code = FolderLook(sent, choice) if sent else None
    deploy_push.look_through(code, script_words(plain), console)
    sbatch = split_words(FLAG.sbatch, options.sbatch)
    request = plan.JobRequest(
        options,
        nodes,
        agent_of(replace(plain, script=shlex.join(as_given(command.words, command.bare)), each=""), words),
        own,
        gpus_of_each_node(options),
        sbatch,
        again(options),
        words[1:] if asked.script else words,
        bool(asked.script),
        sent,
        choice,
    )
    plan.check(request)
    if few := sbatch_options.note_of_cpus(FLAG.sbatch, request.sbatch):
        console.note(few)
    return slurm_deploy.deploy(request, console, resumed)


def again(options: Options) -> str:
    """The words, after the program's name, that deploy the same run again."""
    return shlex.join(["deploy", *words_again(options, ("slurm", *COMMAND))])


def continued(options: Options) -> tuple[Options, RecordedRun | None]:
    """With --resume, the options of that run's last start, overridden by those given now; and that run's record."""
    if not options.resume:
        return options, None
    script = read(once_a_node(options.each, options.script), Path(options.folder or "."))
    run = recorded_run.to_resume(options.resume, WantedRun(script.words, options.folder, trainer_words(options)))
    typed = {name: value for name, value in vars(options).items() if value}
    # If one of the options that say what to run (COMMAND) is given now, all of them from the last start are dropped.
    if typed.keys() & {*COMMAND}:
        typed = {**dict.fromkeys(COMMAND, ""), **typed}
    return replace(read_again(run.again), **{**typed, "shared": run.shared}), run


def _variables(options: Options) -> dict[str, str]:
    own = {"MUSTER_SEPARATE": "1"} if options.separate else {}
    return {**own, "MUSTER_OBSERVE": "0"} if options.no_observe else own
