"""One whole preflight on real hosts: connect, look, choose the rendezvous endpoint, probe, judge, rehearse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...causes.finding import UNKNOWN, WARNING, Finding
from ...causes.table import ROWS
from ...core import fields, printable
from ...core.errors import DeployError, Refused
from ...core.results import HostsFailed
from ...core.text import subject
from ...door.session import Session, SshFault, open_all
from ...host import commands as host_commands
from ...host import run_user
from ...host.reached import NoAnswer, ReachedHosts, as_typed
from ...job.cluster import Cluster
from ...job.load import refuse_unfit
from ...job.option_words import command_of
from ...job.values import Mount
from ...preflight import Answers, PreflightRequest, Verdict, confidence, judge
from ...preflight.checks import hosts as host_checks
from ...preflight.checks import interfaces, software
from ...preflight.judge import judge_rehearsed
from ...preflight.probe import rehearsal as talk
from ...preflight.probe.conversation import examine
from ...preflight.request import MUSTER
from ...report import preflight_text
from ...report.console import Console
from ...run.environment import MASTER_PORT
from ...send.image.model import tag_of
from ..node import bare as bare_hosts
from ..node import container
from ..node.container import NodeContainer, Work
from . import meeting, observe, plan, probe_ends, probes, rehearsal
from .presence import ImagePresence, presence_of

NO_CONTAINER = ("docker-refused", "image-missing", "probe-died")
NOT_YET = "not all hosts have the run's image or environment yet; `muster deploy` sends it and then rehearses"
INSIDE = "in the image, with the run's options"
OUTSIDE = "on the hosts themselves"


@dataclass(frozen=True)
class PreflightOptions:
    """What one preflight does. `proof`: rehearse at the end. `measure`: also measure the rate of every pair.

    `choose`: look for the best network. `long`: bytes of the rehearsal's long all_reduce. `python`: the hosts' Python
    with which other launchers start the ranks. `say` gets the name of each phase, from any thread.
    """

    request: PreflightRequest
    proof: bool = False
    measure: bool = False
    long: int = talk.LONG
    python: str = "python3"
    say: Callable[[str], None] = lambda phase: None
    choose: bool = True


def preflight(cluster: Cluster, image: str, options: PreflightOptions) -> tuple[Answers, Verdict]:
    """Return the answers of all hosts and the verdict on them, which includes hosts that cannot be reached.

    Raises UsageError for a cluster file that no run may start with.
    """
    refuse_unfit(cluster)
    options.say("connecting")
    cluster = _without_created_mounts(cluster)
    with open_all(cluster.hosts) as opened:
        faults = {host: NoAnswer.of(fault, "ssh") for host, fault in opened.faults.items()}
        sessions = list(opened.values.values())
        options.say("looking at the hosts")
        # Another launcher needs no container engine.
        needed = options.request.style == MUSTER
        facts = observe.facts(sessions, bring=needed)
        findings = tuple(host_checks.engine(host, fault) for host, fault in facts.faults.items() if needed)
        name = image or cluster.job.image or plan.choose_image(list(facts.values.values()))
        name = bare_hosts.base_of(facts.values, cluster.job) if bare_hosts.are_all_bare(facts.values) else name
        hosts, _ = run_user.choose_uid(ReachedHosts(cluster, sessions, facts.values, findings=findings, faults=faults))
        # Ranks of another launcher run in an image only if the user gives one.
        bare = not (needed or image or cluster.job.image)
        images = _names(name, cluster.job.folder or Path())
        presence = ImagePresence("", {}, False) if bare else presence_of(hosts, images, other_base=True)
        of_images = _of_images(hosts, presence, options)
        return on_hosts(replace(hosts, findings=(*findings, *of_images)), presence, options)


def _of_images(hosts: ReachedHosts, presence: ImagePresence, options: PreflightOptions) -> Iterator[Finding]:
    """Findings about the images that the hosts have under one name."""
    names = [host.name for host in hosts.cluster.hosts]
    layers = {host: held.layers for host, held in presence.by_host.items()}
    # If the images differ, there is no rehearsal that would show an image without torch.
    odd = host_checks.odd_images(layers) if options.proof else ()
    without = probes.without_torch(hosts.with_sessions_to(odd), presence.image)
    yield from host_checks.differing(presence.image, layers, names, without)
    if presence.other_base:
        yield host_checks.other_base(presence.image, names)
    for host, words in presence.broken.items():
        yield host_checks.broken_image(host, words)


def _without_created_mounts(cluster: Cluster) -> Cluster:
    """Drop the mounts that a deploy creates: these folders may be missing, and a preflight changes nothing."""

    def drop_made(mounts: Sequence[Mount]) -> tuple[Mount, ...]:
        return tuple(mount for mount in mounts if not mount.create)

    hosts = tuple(replace(host, mounts=drop_made(host.mounts)) for host in cluster.hosts)
    return replace(cluster, hosts=hosts, job=replace(cluster.job, mounts=drop_made(cluster.job.mounts)))


def on_hosts(hosts: ReachedHosts, presence: ImagePresence, options: PreflightOptions) -> tuple[Answers, Verdict]:
    """Run preflight over open sessions and known facts, which a deploy already has.

    The probes run outside the image if not all hosts have it, or if an engine gives no connection to its container.
    """
    answers, verdict = _looked(hosts, presence, options)
    closed = probe_ends.hosts_without_connection(answers) if presence.everywhere else {}
    if not closed:
        return answers, verdict
    probe_ends.remove_unstarted(hosts.with_sessions_to(closed).sessions)
    warnings = [probe_ends.no_connection(host, words, hosts.facts[host]) for host, words in closed.items()]
    shut = f"{subject(list(closed), 'allows', 'allow')} no connection to a container"
    presence = replace(presence, everywhere=False, shut=shut)
    return _looked(replace(hosts, findings=(*hosts.findings, *warnings)), presence, options)


def _looked(hosts: ReachedHosts, presence: ImagePresence, options: PreflightOptions) -> tuple[Answers, Verdict]:
    inside = presence.everywhere
    where = f"{OUTSIDE}: {presence.shut}" if presence.shut else OUTSIDE
    request = _completed(options.request, hosts, INSIDE if inside else where)
    options.say("starting the probes")
    image = presence.image if inside else bare_hosts.PYTHON if bare_hosts.are_all_bare(hosts.facts) else ""
    started = probes.probes(hosts, image, options.python)
    try:
        faults = {**hosts.faults, **{host: NoAnswer.of_probe(fault) for host, fault in started.faults.items()}}
        mounts = {session.name: container.mounts(session.host, hosts.job) for session in hosts.sessions if inside}
        targets = {host: [mount.target for mount in on_host] for host, on_host in mounts.items()}
        choose = options.choose and not options.request.endpoint
        ready = list(started.values.values())
        answers = examine(ready, request, faults, options.measure, options.say, targets, choose)
    finally:
        probes.close(started)
    answers = _with_holder(probe_ends.with_causes(answers, options.python), hosts.sessions)
    if inside:
        answers = probe_ends.with_unstarted(answers, hosts.sessions)
        answers = probe_ends.with_small_stacks(answers, hosts, image)
    ours = {
        host: {**answers.control.get(host, {}), "kernel": facts.kernel, "called": facts.called_at}
        for host, facts in hosts.facts.items()
    }
    answers = replace(answers, control={**answers.control, **ours})
    outdated = software.too_old(answers) if inside else ()
    apart = list(host_checks.networks(hosts.facts, answers))
    # On some hosts the containers are in another network than the host itself. Findings about calls from or to these
    # hosts would only repeat that, so these links are dropped.
    elsewhere = {host for finding in apart for host in finding.hosts}
    answers = replace(
        answers, links=tuple(link for link in answers.links if not {link.source, link.target} & elsewhere)
    )
    leases = interfaces.leases(hosts.facts, answers)
    of_hosts = (
        (*host_checks.architectures(hosts.facts), *host_checks.homes(hosts.facts), *apart)
        if request.style == MUSTER
        else ()
    )
    held = (*host_checks.mounts(answers, mounts), *host_checks.unlike_mounts(answers, mounts))
    findings = [*hosts.findings, *of_hosts, *leases, *held, *outdated]
    verdict = judge(answers, findings)
    if options.proof and (doubted := confidence.doubts(verdict, answers)):
        tried = _rehearsed(hosts, presence, options, answers, findings, verdict)
        verdict = confidence.after_rehearsal(tried, doubted)
    elif verdict.ok and len(answers.hosts_with_facts) == len(answers.hosts):
        verdict = _rehearsed(hosts, presence, options, answers, findings, verdict)
        if any(finding.cause == "proof-failed" and len(finding.hosts) > 1 for finding in verdict.findings):
            # A limit on bytes, connections or time may have let the first calls through, and have blocked traffic
            # since.
            options.say("looking once more")
            later, second = on_hosts(hosts, presence, replace(options, proof=False, measure=False, choose=False))
            return (answers, verdict) if second.ok else (later, since_rehearsal(second))
    return answers, verdict


def _with_holder(answers: Answers, sessions: Sequence[Session]) -> Answers:
    """Add who holds a port that is taken: a probe in a container sees no process of its host."""
    listens = {host: dict(listen) for host, listen in answers.listens.items()}
    for session in sessions:
        failed = listens.get(session.name, {}).get("failed", {})
        for port, why in failed.items():
            with suppress(SshFault):  # the finding is just as true without the holder's name
                done = session.run(host_commands.script("holder", str(int(port))), check=False)
                words = printable.one_line(fields.first(fields.rows(done.out), "holder")[:200])
                failed = {**failed, port: {**why, "holder": words or why["holder"]}}
        if failed:
            listens[session.name]["failed"] = failed
    return replace(answers, listens=listens)


def _rehearsed(
    hosts: ReachedHosts,
    presence: ImagePresence,
    options: PreflightOptions,
    answers: Answers,
    findings: Sequence[Finding],
    verdict: Verdict,
) -> Verdict:
    """The verdict with what a rehearsal adds to it, or with the reason why there was none."""
    if not options.proof:
        return verdict
    other = options.request.style != MUSTER
    if not presence.everywhere and not other:
        return replace(verdict, not_rehearsed=presence.shut or NOT_YET)
    options.say("rehearsing")
    if presence.everywhere:
        try:
            nodes = _nodes(hosts, presence.image, answers)
        except DeployError as failed:
            return judge_rehearsed(
                answers, findings, planning_findings(failed, [host.name for host in hosts.cluster.hosts]), ""
            )
        done = rehearsal.rehearse(hosts, nodes, answers.request.backend, options.long, options.say)
    else:
        done = rehearsal.bare(hosts.sessions, answers, options.python, options.long, options.say)
    return judge_rehearsed(answers, findings, *done)


def planning_findings(failed: DeployError, hosts: Sequence[str]) -> list[Finding]:
    """The findings if a deploy could not plan what to start: the deploy would fail with these messages."""
    faults = failed.faults if isinstance(failed, HostsFailed) else dict.fromkeys(hosts, failed)
    return [rehearsal.unstarted(host, fault) for host, fault in faults.items()]


def since_rehearsal(second: Verdict) -> Verdict:
    """The verdict of a second look. Hosts that are silent now answered before the rehearsal: no firewall does that."""
    first = second.first
    if first is None or not ROWS[first.cause].gets_no_answer:
        return second
    text = (
        f"{first.text}; they answered before the rehearsal: the link is slow and the rehearsal has filled its "
        "queue, or there is a limit on bytes, connections or time"
    )
    look = "tc -s qdisc; sudo iptables -vnL | grep -i -e quota -e limit"
    fix = f"on {' and '.join(first.hosts)}: {look}; else: {first.fix}"
    late = replace(first, level=UNKNOWN, text=text, fix=fix, or_else=())
    others = tuple(finding for finding in second.findings if finding is not first)
    return replace(second, findings=(late, *others))


def _nodes(hosts: ReachedHosts, image: str, answers: Answers) -> Sequence[NodeContainer]:
    """The containers of a deploy, which meet where this preflight says; or those that another launcher would start."""
    cluster, request = hosts.cluster, answers.request
    named = any(host.interface for host in cluster.hosts)
    interfaces = {} if named else request.interfaces
    met, _ = meeting.choose_meeting(hosts, try_links=False, interfaces=interfaces)
    met = replace(met, address=request.endpoint or met.address, port=request.port)
    nodes = container.node_containers(cluster.hosts, hosts.in_order, cluster.job, Work("rehearsal", image), met)
    return nodes if request.style == MUSTER else [rehearsal.without_interfaces(node, cluster.job) for node in nodes]


def gate(
    hosts: ReachedHosts,
    images: Sequence[str],
    force: bool,
    console: Console,
    before: Mapping[str, Any] | None = None,
    overlooked: Sequence[str] = (),
    ports: tuple[int, ...] = (),
) -> dict[str, Any]:
    """Run the preflight of a deploy, before it changes anything or after its push. Returns the verdict for the record.

    The probes run inside the first of `images` that all hosts have; the last of `images` is the base. In the result,
    `ran` is that image if all hosts could run it; `unseen` lists hosts that cannot be probed before they have the
    image, which is no fault; `interfaces` belong to the network on which the hosts meet, if their routes lead to
    another one. `before`: after a push, the result from before it: the nodes use its interfaces, and what it says is
    not printed again. `overlooked`: causes that do not block this run. `ports`: the ports on which the nodes reach each
    other, in addition to the rendezvous port. Raises Refused for a fault, unless `force`.
    """
    after_push = before is not None
    before = before or {"interfaces": {}, "network": "", "findings": ()}
    with console.waiting("preflight") as say:
        presence, request = (
            presence_of(hosts, images),
            PreflightRequest(backend="auto", interfaces=before["interfaces"], ports=ports),
        )
        options = PreflightOptions(request, choose=not after_push, say=say)
        answers, verdict = on_hosts(hosts, presence, options)
        if (
            presence.everywhere
            and not after_push
            and any(finding.cause in NO_CONTAINER for finding in verdict.problems)
        ):
            # An interrupted push may have left a broken image. The coming push repairs it, or reports the fault.
            presence = replace(presence, everywhere=False)
            answers, verdict = on_hosts(hosts, presence, options)
    given = {host.name for host in hosts.cluster.hosts if host.interface}
    chosen = {} if given else dict(answers.request.interfaces)
    result = {**verdict.json(), "backend": answers.request.backend, "interfaces": chosen}
    # If calls were answered only sometimes, the deploy's own rehearsal after the push decides.
    obstacles = verdict.obstacles({"no-python", *overlooked})
    faults = [finding for finding in obstacles if not confidence.is_left_to_rehearsal(finding, answers)]
    if not faults:
        printed = {(of["cause"], of["level"], of["hosts"]) for of in before["findings"]}
        news = [each.text for each in verdict.findings if (each.cause, each.level, each.hosts) not in printed]
        for text in ([verdict.network] * (verdict.network not in ("", before["network"]))) + news:
            console.note(f"preflight: {text}")
        unseen = [host for finding in verdict.problems for host in finding.hosts]
        ran = presence.image if presence.everywhere and answers.request.where == INSIDE else ""
        return {**result, "ran": ran, "unseen": unseen, "ignored": []}
    for line in preflight_text.lines_of(verdict, answers.request.backend):
        console.note(line)
    if not force:
        raise Refused(f"preflight: {faults[0].text}", f"{faults[0].fix}; then: {_again(hosts)}")
    for finding in faults:
        console.warn(f"ignored because of --force: {finding.text}")
    return {**result, "ran": "", "unseen": [], "ignored": [finding.text for finding in faults]}


def rehearse(hosts: ReachedHosts, nodes: Sequence[NodeContainer], backend: str, console: Console) -> str:
    """Rehearse a deploy's nodes before they start; returns what this has shown. Raises Refused for a fault."""
    with console.waiting("preflight") as say:
        findings, shown = rehearsal.rehearse(hosts, nodes, backend, say=say)
    faults = [finding for finding in findings if finding.level != WARNING]
    if faults:
        texts = "; ".join(finding.text for finding in faults)
        raise Refused(f"rehearsal: {texts}", f"{faults[0].fix}; then: {_again(hosts)}")
    for finding in findings:
        console.warn(finding.text)
    if shown:
        console.note(f"rehearsed: {shown}")
    return shown


def _again(hosts: ReachedHosts) -> str:
    return command_of("preflight", hosts=as_typed(hosts.sessions))


def _names(image: str, folder: Path) -> list[str]:
    """The names that an image may have on the hosts: a push's names, with the folder and without, and its own name."""
    return [*(tag_of(image, pushed_folder) for pushed_folder in (folder, None)), image]


def _completed(request: PreflightRequest, hosts: ReachedHosts, where: str) -> PreflightRequest:
    """The request with the endpoint and the port that a deploy would choose, and where the probes run, in words."""
    if request.style != MUSTER:
        return replace(
            request, where=f"as {request.style} starts the ranks on the hosts" if where == OUTSIDE else where
        )
    facts = [hosts.facts[host.name] for host in hosts.cluster.hosts if host.name in hosts.facts]
    # A deploy uses the interfaces that the user chose, even if the probes run outside the image.
    named = {host.name: host.interface for host in hosts.cluster.hosts if host.interface}
    request = replace(request, interfaces={**request.interfaces, **named})
    if facts and not request.endpoint and facts[0] is hosts.facts.get(hosts.cluster.hosts[0].name):
        try:
            address = plan.choose_address(facts, request.interfaces.get(hosts.cluster.hosts[0].name))
            port = plan.choose_port(facts[0]) if request.port == MASTER_PORT else request.port
            request = replace(request, endpoint=address, port=port)
        except DeployError:
            pass  # the probes find the same fault, with evidence
    return replace(request, where=where)
