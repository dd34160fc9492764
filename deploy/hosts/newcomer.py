"""A host that was not in a run joins it while it goes on (`fab join`): one more spare, which tells the others of it.

All that its node needs is in the container of a node that runs: the plan with the run's key, the variables, the image's
layers. They come over SSH to this machine, and go to the newcomer over standard input, as a deploy sends them. What the
newcomer runs is what this machine recorded: a host of the run decides neither its arguments nor its other variables.
"""

from __future__ import annotations

import json
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..config.inventory import Cluster, Host
from ..core.errors import BadAnswer, DeployError, UsageError
from ..core.fields import address, array, flag, json_object, record, row, table, text, whole
from ..core.names import RunId, node_name, node_of
from ..core.program import FAB
from ..core.results import Results
from ..host import audit, lock, run_user
from ..host.facts import Container, HostFacts
from ..image.folder_look import FolderLook
from ..report.console import Console
from ..run import record as record_of_run
from ..run.environment import CLAIM, GROUP, MUSTER_NAMES, ON_END
from ..ssh.session import Session, open_all
from . import container, group, nodes, observe, plan, preflight, waits
from . import options as deploy_options
from . import push as deploy_push
from .container import Meeting, NodeContainer, Work
from .options import Options
from .places import Places
from .preflight import ReachedHosts

# What a run gives each node that cannot be read from the record, or that a newcomer would not have.
_REFUSED = ("secret", "secret-file", "env-file", "mount", "keep", "overlay", "on-end")
_FIELDS = {"nproc": "processes", "env": "environment"}
_HOSTS_OWN = (
    "PET_NODE_RANK",
    "PET_NPROC_PER_NODE",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "MUSTER_NODE",
    CLAIM,
)
_RANKS, _AGENT = "PET_NPROC_PER_NODE", "trainer.node.agent"
_BUSY = ("gpu-busy", "gpu-claimed", "memory-low")
_MOST = 1024
_PORT, _PLACE = whole(0, 65535), whole(0, 1 << 20)
_PLAN = record(
    {
        "least": whole(1, _MOST),
        "key": text(200, r"[A-Za-z0-9_-]+"),
        "nodes": table(node_name, row(address, _PORT, _PORT), _MOST),
    },
    {
        "apart": flag,
        "spares": array(node_name, _MOST),
        "arbiter": node_name,
        "joined": table(node_name, row(address, _PORT, _PLACE), _MOST),
    },
)
_CONFIG = record(
    {
        "Env": array(text(1 << 20), 10_000),
        "Cmd": array(text(1 << 16), 10_000),
        "Labels": record({"muster.start": text(200)}),
    }
)


@dataclass(frozen=True)
class Template:
    """What a node that runs has: variables, `words` for the agent, the run's plan, the token of this start."""

    variables: Mapping[str, str]
    words: tuple[str, ...]
    plan: Mapping[str, Any]
    token: str


def is_of_run(name: str) -> bool:
    """Whether a variable with one of Muster's names is the run's own. A host is asked for no other."""
    return name in MUSTER_NAMES and name != ON_END


def refuse_other_arguments(run: str, theirs: Sequence[str], recorded: Sequence[str] | None) -> None:
    """Raise UsageError if the node of the run says that it trains otherwise than this machine recorded. Pure."""
    if recorded is None or list(theirs) != list(recorded):
        ours = "nothing" if recorded is None else shlex.join(recorded)
        raise UsageError(
            f"{run}: its node runs {shlex.join(theirs)[:200]!r}, and this machine has recorded {ours[:200]!r}",
            f"run it on the machine where `{FAB} deploy` was typed; never trust a host that runs something else",
        )


def again(text: str) -> dict[str, Any]:
    """The options of the deploy, as its record repeats them. Raises UsageError for one that a newcomer cannot have."""
    words, found = shlex.split(text), dict[str, Any]()
    for option, value in zip(words[::2], words[1::2], strict=False):
        name = option.removeprefix("--")
        if name in _REFUSED:
            raise UsageError(f"a run with --{name} cannot take a new host yet", "hosts of the run may leave and join")
        field = _FIELDS.get(name, name.replace("-", "_"))
        is_list = isinstance({each.name: each.default for each in fields(Options)}.get(field), tuple)
        found[field] = (*found.get(field, ()), value) if is_list else value
    return {
        name: found[name]
        for name in ("image", "folder", "processes", "gpus", "include", "folder_limit", "environment")
        if name in found
    }


def template_of(answer: str) -> Template:
    """Read `docker inspect` of a node's container. Raises BadAnswer."""
    config = _CONFIG(json_object(answer, "a container"), "a container")
    variables = {name: value for name, _, value in (entry.partition("=") for entry in config["Env"])}
    agreed = _PLAN(json_object(variables.pop(GROUP, ""), "the plan of the run"), "the plan of the run")
    if _RANKS not in variables or _AGENT not in config["Cmd"]:
        raise BadAnswer("a node's container", f"{_RANKS} and {_AGENT}", None)
    words = tuple(config["Cmd"][config["Cmd"].index(_AGENT) + 1 :])
    return Template(variables, words, agreed, config["Labels"]["muster.start"].rpartition("-")[0])


def planned(template: Template, name: str, address: str, port: int, place: int, made: NodeContainer) -> dict[str, str]:
    """The variables of the newcomer: those of the run, the host's own, and the plan in which it is a spare. Pure."""
    agreed = {key: value for key, value in template.plan.items() if key != "joined"}
    known = template.plan.get("joined", {})
    agreed["nodes"] = {node: at for node, at in template.plan["nodes"].items() if node not in known}
    agreed["nodes"][name] = [address, port, port]
    agreed["spares"] = [*(node for node in template.plan.get("spares", ()) if node not in known), name]
    agreed["joined"] = {name: [address, port, place]}
    own = {key: made.environment[key] for key in _HOSTS_OWN if key in made.environment}
    # torchrun reads PET_* for each of its options, also for those that start another program.
    ours = {key for key in made.environment if key.startswith("PET_")}
    runs = {key: value for key, value in template.variables.items() if key in ours or is_of_run(key)}
    return {**made.environment, **runs, **own, GROUP: json.dumps(agreed)}


def join(run: RunId, host: Host, console: Console, dry_run: bool) -> Container:
    """Start a node of the run on this host. Raises UsageError or DeployError; then nothing of it is left there."""
    known = record_of_run.own(record_of_run.path_of(run))
    if not known.get("hosts"):
        hint = f"run it on the machine where `{FAB} deploy` was typed"
        raise UsageError(f"{host.name} is new to {run}, and no record of that run is here", hint)
    if known.get("script"):
        raise UsageError(f"{run} runs a script: a new host cannot join it yet", "hosts of the run may leave and join")
    others = [each for each in known["hosts"] if each != host.destination]
    options = Options(",".join([*others, host.destination]), known.get("cluster", ""), **again(known.get("again", "")))
    with open_all(options.load().hosts) as opened:
        reached = list(opened.values.values())
        facts = observe.facts(reached)
        return _join(run, options, _present(options.load(), reached, facts), console, dry_run, known.get("arguments"))


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
    made = _container(run, options, hosts, template, place, members)
    if dry_run:
        console.text(f"{new.host.name}: start {name} as {made.name}, a spare\n    {shlex.join(made.argv)}")
        return first
    with lock.take(hosts.sessions, run), Places([new], hosts.facts, run, template.token) as places:
        places.take()
        hosts = replace(hosts, facts=places.narrowed(hosts.facts))
        made = _container(run, options, hosts, template, place, members)
        preflight.gate(hosts, (made.image,), False, console, None, _BUSY)
        folder = options.code(hosts.cluster)
        code = FolderLook(folder, deploy_options.choice_of(hosts.cluster)) if folder else None
        base = deploy_push.base_of(options, hosts.cluster, hosts.facts, console, hosts.sessions, True)
        deploy_push.bring([new], base, code, made.image, console)
        refuse_other_image(run, _layers(running[0], first.name), _layers(new, made.image, image=True))
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
    found = plan.runs_of(observe.containers([session], run).all()).get(run, {})
    if session.host.name not in found:
        raise DeployError(f"{session.host.name}: its node is gone", f"{FAB} logs --hosts {session.host.name}")
    return found[session.host.name]


def refuse_other_image(run: str, theirs: str, ours: str) -> None:
    """Raise UsageError if the newcomer would run another image. Pure."""
    if theirs != ours:
        raise UsageError(
            f"the image or the folder has changed since {run} began: the newcomer would train with other code",
            f"{FAB} stop, then {FAB} deploy --resume {run} with the new code",
        )


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
    cluster, _ = run_user.choose(hosts.cluster, hosts.sessions, hosts.facts, run)
    new, host = hosts.sessions[-1], hosts.cluster.hosts[-1]
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
    tag = deploy_options.tag_of(
        deploy_push.base_of(replace(options, dry_run=True), cluster, hosts.facts, Console(True), hosts.sessions, True),
        options.code(cluster),
    )
    work = Work(run, tag, arguments=template.words, token=template.token, least=template.plan["least"])
    met = Meeting(str(next(iter(at.values()))[0]), 29500, (host.interface or way.interface,))
    facts = hosts.facts[host.name]
    made = container.newcomer(place, host, facts, cluster.job, work, met)
    began = time.time() + facts.clock_ahead_s
    queue = waits.Queue((way.source,), 0, int(began * 1e9), secrets.token_hex(32), audit.who()[1])
    (made,) = waits.claimed((made,), (host,), (facts,), work, queue)
    needed, has = template.variables[_RANKS], made.environment[_RANKS]
    if has != needed:
        raise DeployError(
            f"{host.name} would have {has} ranks, and each node of {run} has {needed[:20]!r}", f"--gpus {needed[:20]}"
        )
    return replace(made, environment=planned(template, str(made.node), way.source, port, place, made))
