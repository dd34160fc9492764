"""One `fab deploy`, whole: look, plan, start, follow.

Until the run has started, any failure cleans up every host (run/launch.py). After that the run no longer needs this
process (hosts/attach.py).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import DONE, UsageError
from ..core.names import RunId, node_of
from ..core.program import FAB
from ..core.text import duration
from ..door.session import open_all
from ..host import run_user
from ..host.facts import HostFacts
from ..image import push as transfer
from ..image import repository
from ..image.credentials import choice_of
from ..image.folder_look import FolderLook
from ..image.model import tag_of
from ..image.push import Pushed
from ..job import script_file
from ..job import secrets as secret_settings
from ..job.cluster import Cluster
from ..job.load import (
    environment_of,
    fill_from_file,
    folder_to_send,
    load_cluster,
    read_command,
    read_run,
    refuse_open_secrets,
    script_words,
    trainer_words,
)
from ..job.options import Options
from ..job.script import ScriptCommand, once_a_node
from ..job.secrets import secrets_of
from ..report.console import Console
from ..report.interrupts import Interrupts
from ..report.script_lines import shown_ranks
from ..run import alone, code, environment, folders, record, resumable
from ..run.launch import launch
from ..run.progress import WAIT_LOST_S
from ..run.state.times import CLOCKS_DIFFER_S
from . import attach, container, group, large_folder, meeting, observe, overlay, overlay_plan, packages, plan, resume
from . import push as deploy_push
from .backend import RunHandle
from .container import Work
from .new_run import DeployRequest, NewRun
from .places import Places, foreseen, uses_gpus, with_choice

_OWN_FILES = (
    "--restarts: no folder is sent, so the script works in the image's own folder, which the hosts do not share: send "
    "a folder with it, or --mount one that the hosts share"
)


def deploy(options: Options, console: Console) -> int:
    """Start the run on all hosts; returns the exit code. Raises DeployError with every host that failed."""
    with Interrupts(console, "reading the options", "nothing was changed") as interrupts:
        resumes, name = bool(options.resume), read_run(options.run)
        options, command, script_run = _what_to_run(fill_from_file(options), console)
        cluster, ranks = load_cluster(options), shown_ranks(options.rank)
        command.refuse_nodes(len(cluster.hosts), "leave out --nnodes: the run has a node on each host")
        deploy_push.refuse_mixed(cluster)
        work, folder = replace(_work(options, cluster), bare=command.bare), folder_to_send(options, cluster)
        cluster = overlay_plan.asked(cluster, work, options.wait)
        first, choice = next(iter(work.script), "-"), choice_of(cluster)
        look = FolderLook(folder, choice) if folder else None
        deploy_push.look_through(look, "" if first.startswith("-") else first, console)
        needs = packages.asked(cluster, look, console) if work.script else None
        code_now = repository.look(folder, choice, look.result()) if folder and look else None
        if folder:
            _warn_alone(folder, work.script, cluster, console)
        if work.restarts and not folder and len(cluster.hosts) > 1 and not cluster.job.mounts:
            console.warn(_OWN_FILES)
        interrupts.at("connecting")
        with open_all(cluster.hosts) as opened:
            sessions = list(opened.all().values())
            interrupts.at("looking at the hosts")
            facts = observe.facts(sessions).all()
            observe.refuse_missing(sessions, cluster.job)
            base = deploy_push.base_of(options, cluster, facts, console, sessions, not work.script)
            tag = tag_of(base, folder)
            resumption = None
            if script_run:
                resumption = resume.continue_script(script_run, facts, resumes, console.warn)
            elif options.resume:
                resumption = resume.choose(options.resume, sessions, facts, work.arguments)
            if resumption:
                work = replace(work, arguments=(*resumption.arguments, *work.arguments), start=resumption.start)
            cluster, who = run_user.choose(cluster, sessions, facts, resumption.run if resumption else "")
            work = replace(work, image=tag, sent=folder is not None, observe=not options.no_observe)
            work = replace(work, ports=group.choose_ports(list(facts.values())) if work.least else ())
            request = DeployRequest(
                cluster, sessions, facts, base, folder, tag, work, choice, options.force, needs, options.wait
            )
            request = _overlaid(request)
            _tell_user(who, facts, console)
            _tell_neighbours(facts, name, console)
            if options.dry_run:
                _dry_run(request, console)
                return DONE
            _make_folders(request, console)
            resumed_dir = record.folder_of(folders.RUNS, resumption.run) if resumption else None
            resume_fields = {
                **_for_the_record(options, command),
                "foreign": ["arguments"] if resumption and resumption.foreign else [],
            }
            running = name or (resumption.run if resumption else environment.script_name(work.script))
            with Places(sessions, facts, running, work.token, options.wait) as places:
                backend = _start(request, name, resumed_dir, resume_fields, places, console, interrupts)
            code.write(backend.run.run_dir, code_now)
            run = backend.run.run_dir.name
            where = ", ".join(facts)
            waiting = f"{run} waits on {where}: its nodes start by themselves; this machine may sleep"
            console.note(waiting if backend.waits else f"{run} runs on {where}")
            console.data({"kind": "started", "run": run, "nodes": dict(backend.run.nodes), "waits": backend.waits})
            if options.detach:
                console.note(f"follow it: {FAB} attach --hosts {options.hosts or ','.join(facts)} --run {run}")
                console.line(run)
                return DONE
            return attach.follow_until_done(backend, console, interrupts, ranks, (folder, choice) if folder else None)


def _what_to_run(options: Options, console: Console) -> tuple[Options, ScriptCommand, RunId | None]:
    """The options with the script to run, its command, and the recorded run of a script that goes on, if one does.

    Raises UsageError, and says what is not used of the command, and what is another one than before.
    """
    options = replace(options, script=once_a_node(options.each, options.script))
    for variable, value in environment.asked_style(options.style, bool(options.script)).items():
        options = replace(options, style="", env=(*options.env, f"{variable}={value}"))
    if not (options.script or options.args or options.resume):
        script_file.refuse_no_script(options.folder)
    options, script_run = resume.script_run(options)
    options, command = read_command(options)
    for note in command.notes:
        console.note(note)
    if script_run and (other := resumable.other_than(record.path_of(script_run), command.words, options.folder)):
        console.warn(other)
    return options, command, script_run


def _for_the_record(options: Options, command: ScriptCommand) -> dict[str, Any]:
    """For record.json: what a resume repeats, where the script lies, and whether its command asks for no torchrun."""
    fields: dict[str, Any] = dict(resume.resume_fields(options))
    if command.words:
        fields |= {"sent_from": resumable.sent_from(options.folder, folders.RUNS), "bare": command.bare}
    return fields


def _make_folders(request: DeployRequest, console: Console) -> None:
    """Make the folders that the hosts lack, and name them."""
    work, job = request.work, request.cluster.job
    for host, made in observe.make_folders(request.sessions, request.facts, job, bool(work.script)).all().items():
        for path in made:
            console.note(f"{host}: made {path}")


def _overlaid(request: DeployRequest) -> DeployRequest:
    """Return the request on an overlay network, if the job wants one. Raises DeployError if a host cannot have it."""
    if not request.cluster.job.overlay:
        return request
    looks = overlay.look(request.sessions)
    return request.overlaid(overlay_plan.planned(request.work.token, looks, request.facts))


def _tell_user(who: str, facts: Mapping[str, HostFacts], console: Console) -> None:
    """Say as whom the run's processes run, where it is not one user who logs in on all hosts."""
    uids = {fact.uid for fact in facts.values()}
    if len(uids) > 1 or 0 in uids:
        console.note(f"the run's processes run {who}")
    console.data({"kind": "user", "text": who})


def _tell_neighbours(facts: Mapping[str, HostFacts], own: str, console: Console) -> None:
    """Name the runs that share a host's processor with this one: claims keep only GPUs apart."""
    for host, fact in facts.items():
        others = sorted({each.run for each in fact.containers if each.code is None and each.run != own})
        if others and not fact.gpus:
            console.note(f"{host} runs {', '.join(others)} as well: they share its processor")


def _warn_alone(folder: Path, script: Sequence[str], cluster: Cluster, console: Console) -> None:
    """Warn about each line of the script that makes each host train alone."""
    ranks = 2 if cluster.job.processes not in ("auto", 1) else 1  # a GPU host may have more: nobody has looked yet
    if not cluster.job.separate and len(cluster.hosts) * ranks > 1:
        for warning in alone.warnings(folder, script, len(cluster.hosts)):
            console.warn(warning)


def _start(
    request: DeployRequest,
    name: str,
    resumed_dir: Path | None,
    resume_fields: dict[str, Any],
    places: Places,
    console: Console,
    interrupts: Interrupts,
) -> NewRun:
    """Start the run. When this returns, the run is running, and nothing undoes it any more.

    `resumed_dir`: the folder of the run to resume. `resume_fields`: what its record keeps for the next resume.
    """
    work, hosts = request.work, request.cluster.hosts
    plan.refuse_foreign(name, {host: fact.containers for host, fact in request.facts.items()})
    taken = frozenset[str]().union(*(fact.runs for fact in request.facts.values()))
    run_dir = resumed_dir or _run_folder(name, work, taken)
    names, secrets = {host.name: node_of(host.name) for host in hosts}, (lambda: work.secrets) if work.secrets else None
    handle = RunHandle(
        run_dir, names, bool(work.script), work.script or work.arguments, resumed_dir is not None, secrets
    )
    since = time.time() - CLOCKS_DIFFER_S if handle.resumed else 0.0
    handle = replace(handle, wait_lost_s=request.cluster.job.wait_lost or WAIT_LOST_S, least=work.least, since=since)
    backend = NewRun(request, handle, places, console, interrupts)

    def open_record() -> dict[str, bytes]:
        fields = {**resume_fields, "gpus": backend.gpus, "wait_lost_s": handle.wait_lost_s, "least": handle.least}
        return attach.open_record(handle, [host.destination for host in hosts], fields)

    launch(backend, run_dir, handle.resumed, open_record, interrupts.hold)
    return backend


def _dry_run(request: DeployRequest, console: Console) -> None:
    """Print the plan: for each host the steps, the reasons and the commands."""
    asked = [session for session in request.sessions if uses_gpus(session, request.facts[session.host.name])]
    for session in request.sessions:
        for mount in container.mounts(session.host, request.cluster.job):
            if mount.create:
                console.note(f"{session.host.name}: would make {mount.source}, if it is missing")
    choices = foreseen(asked, observe.gpus(asked).all())
    for host, choice in choices.items():
        if choice.taken:
            then = "its nodes would wait" if request.wait else "a deploy would be refused now; with --wait, it waits"
            console.warn(f"{host}: {choice.taken}: {then}")
    if request.wait and any(choice.taken for choice in choices.values()):
        request, choices = request.waiting(), {}
    free = {host: with_choice(request.facts[host], choice) for host, choice in choices.items() if not choice.taken}
    request = replace(request, facts={**request.facts, **free})
    containers = request.containers("RUN", try_links=not request.force)
    hosts = request.cluster.hosts
    if meeting.several([request.facts[host.name] for host in hosts]) and not any(host.interface for host in hosts):
        console.note("the hosts share several networks: the deploy measures them, and takes the best one's interfaces")
    pushes = transfer.foresee(request.sessions, request.base, request.code(), request.tag).all()
    containers = large_folder.give(containers, pushes)
    if request.requirements:
        pushed = {host: Pushed(0, push.why, push.folder, push.digest) for host, push in pushes.items()}
        target = packages.Target(request.cluster, request.sessions, request.facts, request.tag, pushed=pushed)
        packages.foretell(target, request.requirements, console)
        containers = packages.foreseen(containers)
    steps = plan.steps(containers, pushes)
    for step in steps:
        console.data({"kind": "step", "host": step.host, "text": step.text, "reason": step.reason, "argv": step.argv})
    for node in containers:
        variables = {"kind": "variables", "host": node.host, "environment": dict(node.environment)}
        console.data({**variables, "secrets": sorted(node.secrets)})
    console.text("\n".join(plan.plan_lines(steps, containers)))
    patience = request.cluster.job.wait_lost or WAIT_LOST_S
    console.note(f"a host that is lost, or a link that is cut, is waited for {duration(patience)} (--wait-lost)")


def _work(options: Options, cluster: Cluster) -> Work:
    """The work, without its image and its run id, which are chosen later. Raises UsageError for wrong options."""
    hidden = secrets_of(cluster)
    refuse_open_secrets(options, secret_settings.telling(cluster.job.secrets, hidden))
    script = script_words(options)
    if options.resume and (script or options.run):
        if script:
            raise UsageError(f"--resume {options.resume}: it names no run of a script", f"{FAB} runs lists them")
        raise UsageError("--resume continues a run of Muster's trainer and cannot take --run", "leave out --run")
    arguments = () if script else trainer_words(options)
    variables = environment_of(options)
    if twice := sorted(variables.keys() & hidden.keys()):
        raise UsageError(f"--env {twice[0]}: it is also a secret", "name it once")
    restarts = environment.asked_restarts(options.restarts, bool(script))
    if restarts is not None and environment.MAX_RESTARTS_NAME in variables:
        raise UsageError(f"--env {environment.MAX_RESTARTS_NAME}: --restarts is given too", "leave out one of them")
    work = Work("", "", script, arguments, environment=variables, secrets=hidden, token=secrets.token_hex(8))
    work = replace(work, share_key=secrets.token_hex(16))
    hours, on_end = cluster.job.max_hours, cluster.job.on_end
    if "\n" in on_end:
        raise UsageError("--on-end: a command has one line", "put it into a file of the folder: --on-end 'sh end.sh'")
    spares, arbiter = len(cluster.job.spares), bool(cluster.job.arbiter)
    nodes = len(cluster.hosts) - spares - arbiter
    least = environment.asked_least(cluster.job.min_nodes, nodes, arguments, bool(script), spares > 0, arbiter)
    group.refuse(least, on_end, options.wait)
    resumed = resume.known_ahead(options, cluster)
    return replace(work, restarts=restarts, max_hours=hours, on_end=on_end, least=least, resumed=resumed)


def _run_folder(name: str, work: Work, taken: frozenset[str]) -> Path:
    if name:
        folder = record.folder_of(folders.RUNS, RunId(name))
        if folder.exists() or name in taken:
            raise UsageError(f"--run {name}: a run of this name exists already", "choose another name")
        record.make_runs(folder.parent)
        folder.mkdir(record.OWNERS)
        return folder
    words = ("--recipe", environment.script_name(work.script)) if work.script else work.arguments
    return record.make_folder(folders.RUNS, words, time.time(), taken, secrets.token_hex(2))
