"""A host that was not in a run joins it while it runs (`muster join`): a new spare, which makes itself known.

The container of a running node holds all that the new node needs: the plan with the run's key, the variables, the
image's layers. This machine reads them over SSH and sends them to the newcomer on standard input, as a deploy does.
newcomer_plan.py decides what is used.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...core.errors import DeployError, UsageError
from ...core.names import RunId, node_of
from ...door.session import Session, among, open_all
from ...host import audit, lock, run_user
from ...host.facts import Container
from ...host.reached import ReachedHosts
from ...job.inventory import Host
from ...job.load import environment_of, folder_to_send, load_cluster, script_words, value_of
from ...job.option_words import command_of
from ...job.options import Options
from ...report.console import Console
from ...run.environment import CODE_DIGEST, MASTER_PORT, PACKAGES, SCRIPT, SENT_DIGEST
from ...run.files import record as record_of_run
from ...send.folder.credentials import send_choice_of
from ...send.folder.folder_look import FolderLook
from ...send.image.model import tag_of
from .. import nodes, which_run
from ..node import container, group, packages, sent_folders
from ..node.container import Meeting, NodeContainer, Work
from ..start import observe, plan, preflight, waits
from ..start import push as deploy_push
from ..start.gpu_claims import GpuClaims
from ..start.new_run import DeployRequest
from .newcomer_plan import (
    RANKS,
    Template,
    again,
    planned,
    refuse_file,
    refuse_other_arguments,
    refuse_other_image,
    template_of,
)

_BUSY = ("gpu-busy", "gpu-claimed", "memory-low")


def join(run: RunId, host: Host, console: Console, dry_run: bool) -> None:
    """Start a node of the run on this host. Raises UsageError or DeployError, and then leaves nothing of it there."""
    known = record_of_run.own_fields(record_of_run.path_of(run))
    if not known.get("hosts"):
        hint = "run it on the machine where `muster deploy` was typed"
        raise UsageError(f"{host.name} is new to {run}, but this machine has no record of that run", hint)
    others = [each for each in known["hosts"] if each != host.destination]
    named = {"hosts": ",".join([*others, host.destination]), "cluster": known.get("cluster", "")}
    options = replace(again(known.get("again", "")), dry_run=dry_run, **named)
    words = known.get("arguments")
    if known.get("script") and words:
        options, words = replace(options, script=shlex.join(words)), [SCRIPT, *words]
    cluster = load_cluster(options)
    refuse_file(cluster.job)
    with open_all(cluster.hosts) as opened:
        sessions, last = opened.values, cluster.hosts[-1].name
        facts = observe.facts(sessions.values())
        if last not in facts.values:
            facts.all()
            raise DeployError(f"{last}: does not answer", command_of("status", hosts=last))
        # The hosts that answer; the newcomer comes last.
        reached = among(sessions.values(), facts.values)
        cluster = replace(cluster, hosts=tuple(session.host for session in reached))
        _join(run, options, ReachedHosts(cluster, reached, facts.values), console, words)


def _join(run: RunId, options: Options, hosts: ReachedHosts, console: Console, recorded: Sequence[str] | None) -> None:
    new = hosts.sessions[-1]
    members = which_run.runs_of(hosts.containers_by_host).get(run, {})
    running = [session for session in hosts.sessions[:-1] if (node := members.get(session.name)) and node.code is None]
    if not running:
        raise DeployError(f"no node of {run} is running on the hosts that answer", f"muster deploy --resume {run}")
    first = members[running[0].name]
    if not first.least:
        raise UsageError(f"{run} was started without --min-nodes: no host can join it", "muster stop, then --resume")
    template = template_of(running[0].run(("docker", "inspect", "--format", "{{json .Config}}", first.name)).out)
    refuse_other_arguments(run, template.words, recorded)
    name = node_of(new.name)
    if name in template.plan["nodes"]:
        raise UsageError(f"{name} was a node of {run}, and its container was removed", "join with another host")
    hosts, _ = run_user.choose_uid(hosts, run)
    request = _request(run, options, hosts, template, console)
    peers = {
        session.name: node
        for session in hosts.sessions[:-1]
        if (node := members.get(session.name)) and node.node in template.plan["nodes"] and node.code is None
    }
    place = 1 + max(len(template.plan["nodes"]) - 1, *(node.place for node in members.values()))
    if options.dry_run:
        made = _container(request, hosts.sessions[:-1], peers, template, place)
        console.text(f"{new.name}: start {name} as {made.name}, a spare\n    {shlex.join(made.argv)}")
        return
    with lock.lock_hosts(hosts.sessions, run), GpuClaims(request, run, template.token) as gpu_claims:
        gpu_claims.take()
        request = replace(request, facts=gpu_claims.narrow_facts(request.facts))
        made = _container(request, hosts.sessions[:-1], peers, template, place)
        preflight.gate(replace(hosts, facts=request.facts), (request.tag,), False, console, None, _BUSY)
        made, volume = _equipped(request, made, console)
        sent = (SENT_DIGEST, CODE_DIGEST)
        theirs = (_layers(running[0], first.name), *map(template.variables.get, sent), _packages(running[0], first))
        ours = (_layers(new, made.image, image=True), *map(made.environment.get, sent), volume)
        refuse_other_image(run, theirs, ours)
        made = replace(made, claim=gpu_claims.claim_names().get(new.name, ""))
        try:
            nodes.start([new], [made])
        except BaseException:
            nodes.undo([new], [made], console.warn)
            raise
    audit.note(new, audit.Action.JOINED, name, run)
    run_dir = record_of_run.path_of(run)
    facts = record_of_run.facts(run_dir)
    joined = list(dict.fromkeys([*facts["hosts"], new.host.destination]))
    record_of_run.write_record(run_dir, {**facts, "hosts": joined})


def _request(run: RunId, options: Options, hosts: ReachedHosts, template: Template, console: Console) -> DeployRequest:
    """What the deploy asked for, limited to the newcomer."""
    job = replace(hosts.cluster.job, min_nodes=str(template.plan["least"]))
    cluster, script = replace(hosts.cluster, job=job), script_words(options)
    folder = folder_to_send(options, cluster)
    choice = send_choice_of(cluster)
    code = FolderLook(folder, choice) if folder else None
    base = deploy_push.base_of(options, hosts, console, not script)
    needs = packages.asked(cluster, code, console) if script else None
    work = Work(
        run,
        tag := tag_of(base, folder),
        script,
        () if script else template.words,
        environment=environment_of(options),
        token=template.token,
        sent=bool(script and folder),
        restarts=value_of(options, "restarts") if script else None,
        least=template.plan["least"],
    )
    alone = replace(cluster, hosts=cluster.hosts[-1:])
    return DeployRequest(alone, hosts.sessions[-1:], hosts.facts, base, tag, folder, choice, needs, work=work)


def _equipped(request: DeployRequest, made: NodeContainer, console: Console) -> tuple[NodeContainer, str]:
    """The newcomer's container once its host has all that it needs, and the digest of its packages."""
    pushed = deploy_push.bring(request, request.code(), console)
    (made,) = sent_folders.mount_folders([made], pushed)
    observe.make_folders(request, bool(request.work.script)).all()
    # The deploy's lock of packages is used, which this machine has kept; a newer lock would have another digest.
    installed = packages.bring(request, pushed, console)
    (made,) = packages.mount_packages([made], installed)
    return made, _digest(installed.environments.get(made.host, "")) if installed else ""


def _packages(session: Session, node: Container) -> str:
    """The digest of the packages that a running node of the run has; empty if it has none."""
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
    request: DeployRequest, others: Sequence[Session], peers: Mapping[str, Container], template: Template, place: int
) -> NodeContainer:
    """The newcomer's container. `peers`: the running nodes by host.

    Raises DeployError if the newcomer and its peers cannot reach each other.
    """
    (host,), (new,), run = request.cluster.hosts, request.sessions, request.work.run_id
    facts, at = request.facts[host.name], template.plan["nodes"]
    where = {peer: tuple(at[node.node]) for peer, node in peers.items()}
    way = observe.routes([new], {host.name: next(iter(where.values()))[0]}).all()[host.name]
    port = plan.choose_ports([facts], group.PORTS)[0]
    for address, _, theirs in where.values():
        observe.refuse_unreached([new], {host.name: [address]}, theirs)
    observe.refuse_unreached(others, {peer: [way.source] for peer in where}, port)
    met = Meeting(str(next(iter(at.values()))[0]), MASTER_PORT, (host.interface or way.interface,))
    made = container.newcomer(place, host, facts, request.cluster.job, request.work, met)
    (made,) = waits.with_claims((made,), (host,), (facts,), request.work, waits.queue((way.source,), 0, facts))
    needed, has = template.variables[RANKS], made.environment[RANKS]
    if has != needed:
        raise DeployError(
            f"{host.name} would have {has} ranks, but each node of {run} has {needed[:20]!r}", f"--gpus {needed[:20]}"
        )
    return replace(made, environment=planned(template, str(made.node), way.source, port, place, made))
