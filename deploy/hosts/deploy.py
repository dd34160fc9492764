"""One `fab deploy`, whole: look, plan, push, start, then follow. Whatever ends it before the run has started, nothing
of it is left on any host; from then on the run does not need us (hosts/attach.py).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config.inventory import Cluster
from ..core.errors import DONE, UsageError
from ..core.names import RunId, asked_run
from ..host import lock, run_user
from ..host.facts import HostFacts
from ..image import push as transfer
from ..image.credentials import Choice
from ..report.console import Report
from ..report.interrupts import Stopping
from ..run import alone, folders, record
from ..ssh.session import Session, open_all
from . import attach, backend, container, observe, plan, preflight, resume
from . import options as deploy_options
from . import push as deploy_push
from .attach import Followed
from .container import HostSpec, Work
from .options import Options
from .preflight import Ground


@dataclass(frozen=True)
class _Order:
    """What one deploy is to do: what was asked for, and what the hosts are. `facts` by host."""

    cluster: Cluster
    sessions: Sequence[Session]
    facts: Mapping[str, HostFacts]
    base: str
    folder: Path | None
    tag: str
    work: Work
    choice: Choice
    force: bool

    def specs(self, run_id: str, try_links: bool) -> tuple[HostSpec, ...]:
        """What each host runs. Raises DeployError where hosts have no way to each other; try_links: and try it."""
        return _specs(self, replace(self.work, run_id=run_id), try_links)


def deploy(options: Options, report: Report) -> int:
    """Run as asked on all hosts; returns the exit code. Raises DeployError with every host that failed."""
    with Stopping(report, "reading what is asked", "nothing was touched") as stopping:
        cluster = options.load()
        deploy_push.refuse_mixed(cluster)
        work, folder = _work(options, cluster), options.code(cluster)
        name = asked_run("--name", options.name)
        first, choice = next(iter(work.script), "-"), deploy_options.choice_of(cluster)
        deploy_push.look_through(folder, "" if first.startswith("-") else first, choice, report)
        if folder:
            _warn_alone(folder, work.script, cluster, report)
        stopping.at("connecting")
        with open_all(cluster.hosts) as opened:
            sessions = list(opened.all().values())
            stopping.at("looking at the hosts")
            facts = observe.facts(sessions).all()
            observe.refuse_missing(sessions, cluster.job)
            base = deploy_push.base_of(options, cluster, facts, report)
            tag = deploy_options.tag_of(base, folder)
            resumed = resume.choose(options.resume, sessions, facts) if options.resume else None
            if resumed:
                work = replace(work, arguments=(*resumed.arguments, *work.arguments), start=resumed.start)
            cluster, who = run_user.choose(cluster, sessions, facts, resumed.run if resumed else "")
            order = _Order(cluster, sessions, facts, base, folder, tag, replace(work, image=tag), choice, options.force)
            report.note(f"the run's processes are there {who}")
            report.data({"kind": "user", "text": who})
            if options.dry_run:
                _foretell(order, report)
                return DONE
            there = record.folder_of(folders.RUNS, resumed.run) if resumed else None
            again = {**resume.again(options), "foreign": ["arguments"] if resumed and resumed.foreign else []}
            followed = _start(order, name, there, again, report, stopping)
            run = followed.run_dir.name
            report.note(f"{run} runs on {', '.join(facts)}")
            report.data({"kind": "started", "run": run, "nodes": dict(followed.nodes)})
            if options.detach:
                report.note(f"fab attach --hosts {options.hosts or ','.join(facts)} --run {run} follows it")
                report.line(run)
                return DONE
            return attach.to_the_end(followed, sessions, report, stopping)


def _warn_alone(folder: Path, script: Sequence[str], cluster: Cluster, report: Report) -> None:
    """Say which line of the script makes each host train alone, as far as the script alone shows it."""
    ranks = 2 if cluster.job.processes not in ("auto", 1) else 1  # more on a GPU host, perhaps: that is not known yet
    path = alone.file_of(folder, script)
    if path is None or cluster.job.separate or len(cluster.hosts) * ranks < 2:
        return
    for line, why in alone.signs(alone.read(path), len(cluster.hosts)):
        where = f"{path.relative_to(folder)}:{line}" if line else str(path.relative_to(folder))
        report.warn(f"will probably train alone: {where}: {why}")


def _start(
    order: _Order, name: str, there: Path | None, again: dict[str, Any], report: Report, stopping: Stopping
) -> Followed:
    """From the locks to the last node's start; when it returns, the run goes on and nothing is cut short any more.

    Locked first: of two deploys at the same moment the second is told who is at work, not what is in its way.
    `there` is the folder of a run to go on with, `again` what its next resume has to say.
    """
    others = {host: fact.containers for host, fact in order.facts.items()}
    plan.refuse_foreign(name, others)
    taken = frozenset[str]().union(*(fact.runs for fact in order.facts.values()))
    run_dir, kept = there or _run_folder(name, order.work, taken), dict[str, bytes]()
    try:
        stopping.at("locking the hosts")
        with lock.take(order.sessions, run_dir.name) as held:
            stopping.at("trying the links between the hosts")
            ground = Ground(order.cluster, order.sessions, order.facts)
            seen = preflight.gate(ground, (order.tag, order.base), order.force, report)
            stopping.at("planning")
            specs = order.specs(run_dir.name, try_links=bool(seen["unseen"]))
            script, said = bool(order.work.script), order.work.script or order.work.arguments
            secrets = order.work.secrets
            supply = (lambda: secrets) if secrets else None
            nodes = {one.host: one.node for one in specs}
            followed = Followed(run_dir, nodes, script, said, there is not None, supply)
            kept = attach.open_record(followed, [host.destination for host in order.cluster.hosts], again)
            record.write_json(run_dir / "preflight.json", seen)
            stopping.at("pushing the image", deploy_push.LEFT_BY_A_PUSH)
            proven = seen["ran"] == order.tag
            deploy_push.bring(order.sessions, order.base, order.folder, order.tag, report, order.choice, proven)
            if not (seen["ran"] or order.force):
                # The first deploy of an image needs preflight most, and only now is there an image to look from.
                stopping.at("trying the image", deploy_push.LEFT_BY_A_PUSH)
                seen = preflight.gate(ground, (order.tag, order.base), order.force, report, brought=True)
                record.write_json(run_dir / "preflight.json", seen)
            held.refuse_lost()
            if there:  # what an earlier start left
                backend.remove(order.sessions, run_dir.name).all()
            _start_nodes(order, specs, report, stopping)
    except BaseException:
        stopping.hold()
        if kept or not there:  # a run that goes on is not touched before its record is
            with suppress(OSError):
                record.undo_start(run_dir, kept)
        raise
    return followed


def _start_nodes(order: _Order, specs: Sequence[HostSpec], report: Report, stopping: Stopping) -> None:
    stopping.at("starting the nodes", "what had started was taken back; nothing of the run is left on any host")
    try:
        backend.start(order.sessions, specs)
        stopping.hold()
    except BaseException:
        stopping.hold()
        _take_back(order.sessions, specs, report, stopping)
        raise


def _take_back(sessions: Sequence[Session], specs: Sequence[HostSpec], report: Report, stopping: Stopping) -> None:
    report.note("taking back what was started")
    faults = backend.undo(sessions, specs).faults
    for host, fault in faults.items():
        report.warn(f"{host}: {fault.message}")
    if faults:
        hosts, run = ",".join(faults), backend.run_of(specs[0])
        stopping.left = f"something may be left on {hosts}: fab down --hosts {hosts} --run {run}"
        report.warn(stopping.left)


def _foretell(order: _Order, report: Report) -> None:
    """Print the plan: per host what would be done, why, and the command."""
    specs = order.specs("RUN", try_links=not order.force)
    pushes = transfer.foresee(order.sessions, order.base, order.folder, order.tag, order.choice).all()
    made = plan.steps(specs, {host: (sent.there, sent.why) for host, sent in pushes.items()})
    for step in made:
        report.data({"kind": "step", "host": step.host, "text": step.text, "reason": step.reason, "argv": step.argv})
    for one in specs:
        told = {"kind": "variables", "host": one.host, "environment": dict(one.environment)}
        report.data({**told, "secrets": sorted(one.secrets)})
    report.text("\n".join(plan.told(made, specs)))


def _specs(order: _Order, work: Work, try_links: bool) -> tuple[HostSpec, ...]:
    hosts, sessions = order.cluster.hosts, order.sessions
    known = [order.facts[host.name] for host in hosts]
    address = plan.choose_address(known, hosts[0].interface)
    # The first host looks the other way: to a peer, or to itself when it is alone.
    back = known[1].reached_at if len(known) > 1 and known[1].addresses else address
    own = [found.address for found in known[1].addresses] if len(known) > 1 else []
    peers = {host.name: address for host in hosts}
    peers[hosts[0].name] = back if back in own or not own else own[0]
    routes = observe.routes(sessions, peers).all()
    ways = [routes[host.name] for host in hosts]
    if ways[0].interface == "lo":
        ways[0] = replace(ways[0], interface=next(a.interface for a in known[0].addresses if a.address == address))
    port = plan.choose_port(known[0])
    # Preflight knows better, but sees nothing where neither the image nor a Python is there yet.
    if len(hosts) > 1 and try_links:
        toward = {host.name: [address] for host in hosts} | {hosts[0].name: [way.source for way in ways[1:]]}
        observe.refuse_unreached(sessions, toward, port)
    meeting = container.meeting_of(hosts, address, port, ways)
    return container.host_specs(hosts, known, order.cluster.job, work, meeting)


def _work(options: Options, cluster: Cluster) -> Work:
    """What is to run; its image and its run are not known yet. Raises UsageError for what was asked wrongly."""
    hidden = deploy_options.secrets_of(cluster)
    deploy_options.refuse_open_secrets(options, hidden)
    script = options.script()
    if options.resume and (script or options.name):
        what = "--run" if script else "--name"
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
            raise UsageError(f"--name {name}: is there already", "a new one for each run")
        folder.mkdir(record.OWNERS, parents=True)
        return folder
    said = ("--recipe", container.script_name(work.script)) if work.script else work.arguments
    return record.make_folder(folders.RUNS, said, time.time(), taken, secrets.token_hex(2))
