"""A host that was not in a run joins it while it goes on (`fab join`): one more spare, which tells the others of it.

All that its node needs is in the container of a node that runs: the plan with the run's key, the variables, the image's
layers. They come over SSH to this machine, and go to the newcomer over standard input, as a deploy sends them.
newcomer_plan.py says what of them counts.
"""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..core.errors import DeployError, UsageError
from ..core.names import RunId, node_of
from ..core.program import FAB
from ..core.results import Results
from ..door.session import Session, open_all
from ..host import audit, lock, run_user
from ..host.facts import Container, HostFacts
from ..image.credentials import choice_of
from ..image.folder_look import FolderLook
from ..image.model import tag_of
from ..job.cluster import Cluster
from ..job.inventory import Host
from ..job.load import environment_of, folder_to_send, load_cluster, script_words
from ..job.options import Options
from ..report.console import Console
from ..run import record as record_of_run
from ..run.environment import PACKAGES, SCRIPT, SENT_DIGEST, asked_restarts
from . import container, group, large_folder, nodes, observe, packages, plan, preflight, waits
from . import push as deploy_push
from .container import Meeting, NodeContainer, Work
from .newcomer_plan import (
    RANKS,
    Template,
    again,
    planned,
    refuse_other_arguments,
    refuse_other_image,
    template_of,
)
from .places import Places
from .preflight import ReachedHosts

_BUSY = ("gpu-busy", "gpu-claimed", "memory-low")


def join(run: RunId, host: Host, console: Console, dry_run: bool) -> Container:
    """Start a node of the run on this host. Raises UsageError or DeployError; then nothing of it is left there."""
    known = record_of_run.own(record_of_run.path_of(run))
    if not known.get("hosts"):
        hint = f"run it on the machine where `{FAB} deploy` was typed"
        raise UsageError(f"{host.name} is new to {run}, and no record of that run is here", hint)
    others = [each for each in known["hosts"] if each != host.destination]
    hosts, cluster = ",".join([*others, host.destination]), known.get("cluster", "")
    options = replace(again(known.get("again", "")), hosts=hosts, cluster=cluster)
    words = known.get("arguments")
    if known.get("script") and words:
        options, words = replace(options, script=shlex.join(words)), [SCRIPT, *words]
    with open_all(load_cluster(options).hosts) as opened:
        reached = list(opened.values.values())
        facts = observe.facts(reached)
        return _join(run, options, _present(load_cluster(options), reached, facts), console, dry_run, words)


def _present(cluster: Cluster, reached: Sequence[Session], facts: Results[HostFacts]) -> ReachedHosts:
    """The hosts that answer, the newcomer last. Raises its own fault."""
    last = cluster.hosts[-1].name
    if last not in facts.values:
        facts.all()
        raise DeployError(f"{last}: does not answer", f"ssh {last}")
    hosts = tuple(host for host in cluster.hosts if host.name in facts.values)
    sessions = {session.host.name: session for session in reached}
    return ReachedHosts(replace(cluster, hosts=hosts), [sessions[host.name] for host in hosts], facts.values)


def _join(
    run: RunId,
    options: Options,
    hosts: ReachedHosts,
    console: Console,
    dry_run: bool,
    recorded: Sequence[str] | None,
) -> Container:
    new = hosts.sessions[-1]
    members = plan.runs_of({name: fact.containers for name, fact in hosts.facts.items()}).get(run, {})
    running = [
        session for session in hosts.sessions[:-1] if (node := members.get(session.host.name)) and node.code is None
    ]
    if not running:
        raise DeployError(f"no node of {run} runs on the hosts that answer", f"{FAB} deploy --resume {run}")
    first = members[running[0].host.name]
    if not first.least:
        raise UsageError(f"{run} runs without --min-nodes: no host can join it", f"{FAB} stop, then --resume")
    template = template_of(running[0].run(("docker", "inspect", "--format", "{{json .Config}}", first.name)).out)
    refuse_other_arguments(run, template.words, recorded)
    name, place = node_of(new.host.name), 1 + max(len(template.plan["nodes"]) - 1, *(n.place for n in members.values()))
    if name in template.plan["nodes"]:
        raise UsageError(f"{name} was a node of {run}, and its container was removed", "join with another host")
    hosts = replace(hosts, cluster=run_user.choose(hosts.cluster, hosts.sessions, hosts.facts, run)[0])
    made = _container(run, options, hosts, template, place, members)
    if dry_run:
        console.text(f"{new.host.name}: start {name} as {made.name}, a spare\n    {shlex.join(made.argv)}")
        return first
    with lock.take(hosts.sessions, run), Places([new], hosts.facts, run, template.token) as places:
        places.take()
        hosts = replace(hosts, facts=places.narrowed(hosts.facts))
        made = _container(run, options, hosts, template, place, members)
        preflight.gate(hosts, (made.image,), False, console, None, _BUSY)
        made, volume = _equipped(made, options, hosts, console)
        theirs = (_layers(running[0], first.name), template.variables.get(SENT_DIGEST), _packages(running[0], first))
        ours = (_layers(new, made.image, image=True), made.environment.get(SENT_DIGEST), volume)
        refuse_other_image(run, theirs, ours)
        made = replace(made, claim=places.names().get(new.host.name, ""))
        try:
            nodes.start([new], [made])
        except BaseException:
            nodes.undo([new], [made])
            raise
    audit.note(new, f"{run} joined as {name}")
    facts = record_of_run.facts(record_of_run.path_of(run))
    record_of_run.write_record(
        record_of_run.path_of(run), {**facts, "hosts": list(dict.fromkeys([*facts["hosts"], new.host.destination]))}
    )
    return observe_node(new, run)


def observe_node(session: Session, run: RunId) -> Container:
    """The container of the run's node there. Raises DeployError if it is gone."""
    by_host = plan.runs_of(observe.containers([session], run).all()).get(run, {})
    if session.host.name not in by_host:
        raise DeployError(f"{session.host.name}: its node is gone", f"{FAB} logs --hosts {session.host.name}")
    return by_host[session.host.name]


def _equipped(
    made: NodeContainer, options: Options, hosts: ReachedHosts, console: Console
) -> tuple[NodeContainer, str]:
    """The newcomer's container once its host has all that it needs; and the digest of its packages."""
    new, cluster, facts = hosts.sessions[-1], hosts.cluster, hosts.facts
    folder = folder_to_send(options, cluster)
    code = FolderLook(folder, choice_of(cluster)) if folder else None
    needs = packages.asked(cluster, code, console) if options.script else None
    base = deploy_push.base_of(options, cluster, facts, console, hosts.sessions, not options.script)
    pushed = deploy_push.bring([new], base, code, made.image, console)
    (made,) = large_folder.give([made], pushed)
    observe.make_folders([new], facts, cluster.job, bool(options.script)).all()
    if not needs:
        return made, ""
    # The lock is the deploy's, which this machine has kept; a later one would have another digest.
    target = packages.Target(cluster, [new], facts, made.image, folder, pushed)
    installed = packages.bring(target, needs, console)
    (made,) = packages.give([made], installed)
    return made, _digest(installed.environments.get(new.host.name, ""))


def _packages(session: Session, node: Container) -> str:
    """The digest of the packages that a node of the run has; empty if it has none."""
    where = f'{{{{range .Mounts}}}}{{{{if eq .Destination "{PACKAGES}"}}}}{{{{.Name}}}}{{{{end}}}}{{{{end}}}}'
    return _digest(session.run(("docker", "inspect", "--format", where, node.name)).out.strip())


def _digest(volume: str) -> str:
    return volume.rpartition("-")[2]


def _layers(session: Session, name: str, image: bool = False) -> str:
    what = name
    if not image:
        what = session.run(("docker", "inspect", "--format", "{{.Image}}", name)).out.strip()
    return session.run(("docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", what)).out.strip()


def _container(
    run: RunId,
    options: Options,
    hosts: ReachedHosts,
    template: Template,
    place: int,
    members: Mapping[str, Container],
) -> NodeContainer:
    """What the newcomer runs. Raises DeployError where it and the others do not reach each other."""
    cluster, new, host = hosts.cluster, hosts.sessions[-1], hosts.cluster.hosts[-1]
    at = {node: tuple(where) for node, where in template.plan["nodes"].items()}
    peers = {
        s.host.name: at[n.node]
        for s in hosts.sessions[:-1]
        if (n := members.get(s.host.name)) and n.node in at and n.code is None
    }
    way = observe.routes([new], {host.name: next(iter(peers.values()))[0]}).all()[host.name]
    port = group.choose_ports([hosts.facts[host.name]])[0]
    for peer_address, _, theirs in peers.values():
        observe.refuse_unreached([new], {host.name: [peer_address]}, theirs)
    observe.refuse_unreached(hosts.sessions[:-1], {peer: [way.source] for peer in peers}, port)
    tag = tag_of(
        deploy_push.base_of(
            replace(options, dry_run=True), cluster, hosts.facts, Console(True), hosts.sessions, not options.script
        ),
        folder_to_send(options, cluster),
    )
    work = Work(run, tag, token=template.token, least=template.plan["least"])
    work = replace(work, environment=environment_of(options))
    if options.script:
        restarts = asked_restarts(options.restarts, True)
        work = replace(
            work, script=script_words(options), sent=folder_to_send(options, cluster) is not None, restarts=restarts
        )
    else:
        work = replace(work, arguments=template.words)
    met = Meeting(str(next(iter(at.values()))[0]), 29500, (host.interface or way.interface,))
    facts = hosts.facts[host.name]
    made = container.newcomer(place, host, facts, cluster.job, work, met)
    began = time.time() + facts.clock_ahead_s
    queue = waits.Queue((way.source,), 0, int(began * 1e9), secrets.token_hex(32), audit.who()[1])
    (made,) = waits.claimed((made,), (host,), (facts,), work, queue)
    needed, has = template.variables[RANKS], made.environment[RANKS]
    if has != needed:
        raise DeployError(
            f"{host.name} would have {has} ranks, and each node of {run} has {needed[:20]!r}", f"--gpus {needed[:20]}"
        )
    return replace(made, environment=planned(template, str(made.node), way.source, port, place, made))
