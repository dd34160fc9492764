"""One `fab deploy`, whole: look, plan, start, follow.

Until the run has started, any failure cleans up every host (run/launch.py). After that the run no longer needs this
process (hosts/attach.py).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..config.inventory import Cluster
from ..core.errors import DONE, UsageError
from ..core.names import RunId, asked_run, node_of
from ..host import run_user
from ..image import push as transfer
from ..report.console import Console
from ..report.interrupts import Interrupts
from ..report.script_lines import shown_ranks
from ..run import alone, folders, record
from ..run.launch import launch
from ..ssh.session import open_all
from . import attach, container, observe, plan, resume
from . import options as deploy_options
from . import push as deploy_push
from .backend import RunHandle
from .container import Work
from .new_run import DeployRequest, NewRun
from .options import Options


def deploy(options: Options, console: Console) -> int:
    """Run as asked on all hosts; returns the exit code. Raises DeployError with every host that failed."""
    with Interrupts(console, "reading what is asked", "nothing was touched") as interrupts:
        cluster, ranks = options.load(), shown_ranks(options.rank)
        deploy_push.refuse_mixed(cluster)
        work, folder = _work(options, cluster), options.code(cluster)
        name = asked_run("--run", options.run)
        first, choice = next(iter(work.script), "-"), deploy_options.choice_of(cluster)
        deploy_push.look_through(folder, "" if first.startswith("-") else first, choice, console)
        if folder:
            _warn_alone(folder, work.script, cluster, console)
        interrupts.at("connecting")
        with open_all(cluster.hosts) as opened:
            sessions = list(opened.all().values())
            interrupts.at("looking at the hosts")
            facts = observe.facts(sessions).all()
            observe.refuse_missing(sessions, cluster.job)
            base = deploy_push.base_of(options, cluster, facts, console)
            tag = deploy_options.tag_of(base, folder)
            resumed = resume.choose(options.resume, sessions, facts) if options.resume else None
            if resumed:
                work = replace(work, arguments=(*resumed.arguments, *work.arguments), start=resumed.start)
            cluster, who = run_user.choose(cluster, sessions, facts, resumed.run if resumed else "")
            work = replace(work, image=tag, sent=folder is not None)
            request = DeployRequest(cluster, sessions, facts, base, folder, tag, work, choice, options.force)
            console.note(f"the run's processes are there {who}")
            console.data({"kind": "user", "text": who})
            if options.dry_run:
                _foretell(request, console)
                return DONE
            resumed_dir = record.folder_of(folders.RUNS, resumed.run) if resumed else None
            again = {**resume.again(options), "foreign": ["arguments"] if resumed and resumed.foreign else []}
            backend = _start(request, name, resumed_dir, again, console, interrupts)
            run = backend.run.run_dir.name
            console.note(f"{run} runs on {', '.join(facts)}")
            console.data({"kind": "started", "run": run, "nodes": dict(backend.run.nodes)})
            if options.detach:
                console.note(f"fab attach --hosts {options.hosts or ','.join(facts)} --run {run} follows it")
                console.line(run)
                return DONE
            return attach.to_the_end(backend, console, interrupts, ranks)


def _warn_alone(folder: Path, script: Sequence[str], cluster: Cluster, console: Console) -> None:
    """Say which line of the script makes each host train alone, as far as the script alone shows it."""
    ranks = 2 if cluster.job.processes not in ("auto", 1) else 1  # more on a GPU host, perhaps: that is not known yet
    path = alone.file_of(folder, script)
    if path is None or cluster.job.separate or len(cluster.hosts) * ranks < 2:
        return
    for line, why in alone.signs(alone.read(path), len(cluster.hosts)):
        where = f"{path.relative_to(folder)}:{line}" if line else str(path.relative_to(folder))
        console.warn(f"will probably train alone: {where}: {why}")


def _start(
    request: DeployRequest,
    name: str,
    resumed: Path | None,
    again: dict[str, Any],
    console: Console,
    interrupts: Interrupts,
) -> NewRun:
    """Start the run; when this returns it goes on, and nothing is cut short any more.

    `resumed` is the folder of a run to go on with, `again` what its next resume has to say.
    """
    work, hosts = request.work, request.cluster.hosts
    plan.refuse_foreign(name, {host: fact.containers for host, fact in request.facts.items()})
    taken = frozenset[str]().union(*(fact.runs for fact in request.facts.values()))
    run_dir = resumed or _run_folder(name, work, taken)
    names, secrets = {host.name: node_of(host.name) for host in hosts}, (lambda: work.secrets) if work.secrets else None
    handle = RunHandle(run_dir, names, bool(work.script), work.script or work.arguments, resumed is not None, secrets)
    backend = NewRun(request, handle, console, interrupts)
    open_record = partial(attach.open_record, handle, [host.destination for host in hosts], again)
    launch(backend, run_dir, handle.resumed, open_record, interrupts.hold)
    return backend


def _foretell(request: DeployRequest, console: Console) -> None:
    """Print the plan: per host what would be done, why, and the command."""
    containers = request.containers("RUN", try_links=not request.force)
    pushes = transfer.foresee(request.sessions, request.base, request.folder, request.tag, request.choice).all()
    made = plan.steps(containers, {host: (sent.there, sent.why) for host, sent in pushes.items()})
    for step in made:
        console.data({"kind": "step", "host": step.host, "text": step.text, "reason": step.reason, "argv": step.argv})
    for one in containers:
        told = {"kind": "variables", "host": one.host, "environment": dict(one.environment)}
        console.data({**told, "secrets": sorted(one.secrets)})
    console.text("\n".join(plan.told(made, containers)))


def _work(options: Options, cluster: Cluster) -> Work:
    """What is to run; its image and its run are not known yet. Raises UsageError for what was asked wrongly."""
    hidden = deploy_options.secrets_of(cluster)
    deploy_options.refuse_open_secrets(options, hidden)
    script = options.script_words()
    if options.resume and (script or options.run):
        what = "--script" if script else "--run"
        raise UsageError(f"--resume goes on with a run of Muster's trainer: {what} makes no sense", "leave it out")
    arguments = () if script else options.trainer_arguments()
    environment = deploy_options.environment_of(options)
    if twice := sorted(environment.keys() & hidden.keys()):
        raise UsageError(f"--env {twice[0]}: it is a secret as well", "name it once")
    return Work("", "", script, arguments, environment=environment, secrets=hidden, token=secrets.token_hex(8))


def _run_folder(name: str, work: Work, taken: frozenset[str]) -> Path:
    if name:
        folder = record.folder_of(folders.RUNS, RunId(name))
        if folder.exists() or name in taken:
            raise UsageError(f"--run {name}: there is a run of this name already", "choose another name")
        folder.mkdir(record.OWNERS, parents=True)
        return folder
    said = ("--recipe", container.script_name(work.script)) if work.script else work.arguments
    return record.make_folder(folders.RUNS, said, time.time(), taken, secrets.token_hex(2))
