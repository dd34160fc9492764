"""One preflight, whole, on real hosts: connect, look, choose where nodes would meet, probe, judge, prove."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from ..config.inventory import Cluster
from ..config.values import Mount
from ..core.docker_faults import DockerFault
from ..core.errors import DeployError, Refused
from ..engine import images as engine_images
from ..host import run_user
from ..host.facts import HostFacts
from ..image.model import base_of
from ..image.push_plan import Held, stands_on
from ..preflight import Answers, Finding, Verdict, Want, judge, refusals
from ..preflight.checks import resources, software
from ..preflight.findings import WARNING, odd_ones
from ..preflight.probe import all_reduce
from ..preflight.probe.conversation import examine
from ..report import preflight_text
from ..report.console import Console
from ..ssh.session import Session, open_all
from . import container, observe, options, plan, probes

NO_CONTAINER = ("docker-refused", "image-missing", "probe-died")
INSIDE, OUTSIDE = "in the image, with the run's options", "on the hosts themselves: the image is not on all of them yet"


@dataclass(frozen=True)
class ReachedHosts:
    """The hosts as far as they could be reached: sessions, what their engines said, and who has no session at all."""

    cluster: Cluster
    sessions: Sequence[Session]
    facts: Mapping[str, HostFacts]
    findings: tuple[Finding, ...] = ()
    faults: Mapping[str, tuple[str, str]] | None = None


@dataclass(frozen=True)
class Seen:
    """An image, and what each host has under its name, where it has one; `everywhere`: all have the same."""

    image: str
    there: Mapping[str, Held]
    everywhere: bool


@dataclass(frozen=True)
class Asked:
    """What one preflight is to do. proof: a real all_reduce at the end. measure: also every pair's rate. say: told the
    phases, from any thread."""

    want: Want
    proof: bool = False
    measure: bool = False
    say: Callable[[str], None] = lambda phase: None


def preflight(cluster: Cluster, image: str, asked: Asked) -> tuple[Answers, Verdict]:
    """The answers of all hosts and the verdict on them. A host that cannot be reached is part of the verdict."""
    asked.say("connecting")
    with open_all(cluster.hosts) as opened:
        faults = {
            host: (refusals.ssh(getattr(fault, "kind", "")), _words(fault)) for host, fault in opened.faults.items()
        }
        sessions = list(opened.values.values())
        asked.say("looking at the hosts")
        looked = observe.facts(sessions)
        findings = tuple(_engine(host, fault) for host, fault in looked.faults.items())
        chosen = image or cluster.job.image or plan.choose_image(list(looked.values.values()))
        cluster, _ = run_user.choose(cluster, sessions, looked.values)
        hosts = ReachedHosts(cluster, sessions, looked.values, findings, faults)
        seen = _there(hosts, _names(chosen, cluster.job.folder))
        return on_hosts(replace(hosts, findings=(*findings, *_differing(seen, hosts))), seen, asked)


def on_hosts(hosts: ReachedHosts, seen: Seen, asked: Asked) -> tuple[Answers, Verdict]:
    """The same where sessions are open and facts known, as in a deploy."""
    inside = seen.everywhere
    want = _completed(asked.want, hosts, inside)
    asked.say("starting the probes")
    found = probes.probes(hosts.sessions, hosts.facts, hosts.cluster.job, seen.image if inside else "")
    try:
        faults = {**(hosts.faults or {}), **{host: _no_probe(fault) for host, fault in found.faults.items()}}
        mounts = {one.host.name: container.mounts(one.host, hosts.cluster.job) for one in hosts.sessions if inside}
        targets = {host: [mount.target for mount in every] for host, every in mounts.items()}
        answers = examine(list(found.values.values()), want, faults, asked.measure, asked.say, targets)
    finally:
        probes.close(found)
    logs = {host: {**answers.control.get(host, {}), "kernel": facts.kernel} for host, facts in hosts.facts.items()}
    answers = replace(answers, control={**answers.control, **logs})
    old = software.too_old(answers) if inside else ()
    findings = [*hosts.findings, *_architectures(hosts), *_homes(hosts), *_mounts(answers, mounts), *old]
    verdict = judge(answers, findings)
    if asked.proof and inside and verdict.ok and len(answers.told) == len(answers.hosts):
        asked.say("a real all_reduce")
        verdict = _prove(hosts, seen.image, answers, findings)
    return answers, verdict


def _prove(hosts: ReachedHosts, image: str, answers: Answers, findings: Sequence[Finding]) -> Verdict:
    job, program = hosts.cluster.job, all_reduce.PROGRAM
    found = probes.probes(hosts.sessions, hosts.facts, job, image, program)
    try:
        return all_reduce.prove(list(found.all().values()), answers, findings)
    finally:
        probes.close(found)


def gate(
    hosts: ReachedHosts, images: Sequence[str], force: bool, console: Console, brought: bool = False
) -> dict[str, Any]:
    """Before a deploy touches anything, or once it has `brought` the image: the verdict, for the run's record.

    It looks from inside the first of `images` (the base is the last of them) that all hosts have; `ran` is that image,
    where all of them could run it, `unseen` are hosts that could not be looked at before they have the image: no fault.
    Raises Refused for a fault, unless `force`.
    """
    with console.waiting("preflight") as say:
        seen, asked = _there(hosts, images), Asked(Want(backend="auto"), say=say)
        answers, verdict = on_hosts(hosts, seen, asked)
        if seen.everywhere and not brought and any(found.cause in NO_CONTAINER for found in verdict.faults):
            # It may be what a push that was cut left there: the one to come will tell, and mend it.
            seen = replace(seen, everywhere=False)
            answers, verdict = on_hosts(hosts, seen, asked)
    said = {**verdict.json(), "backend": answers.want.backend}
    found_wrong = [*verdict.faults, *verdict.unknown]
    faults = [found for found in found_wrong if found.cause != "no-python"]
    if not faults:
        for found in verdict.findings:
            console.note(f"preflight: {found.text}")
        unseen = [host for found in found_wrong for host in found.hosts]
        return {**said, "ran": seen.image if seen.everywhere else "", "unseen": unseen, "ignored": []}
    for line in preflight_text.told(verdict, answers.want.backend):
        console.note(line)
    if not force:
        names = ",".join(session.host.name for session in hosts.sessions)
        raise Refused(f"preflight: {faults[0].text}", f"{faults[0].fix}; then: fab preflight --hosts {names}")
    for found in faults:
        console.warn(f"ignored, as --force asks: {found.text}")
    return {**said, "ran": "", "unseen": [], "ignored": [found.text for found in faults]}


def _names(image: str, folder: Path | None) -> list[str]:
    """Under which names an image may be on the hosts: as fab push left it, with the folder or without, or as it is."""
    pushed = [options.tag_of(image, one) for one in ([folder, None] if folder else [None])]
    return [*pushed, image]


def _there(hosts: ReachedHosts, images: Sequence[str]) -> Seen:
    """The first of the images that all hosts have alike, else the last one, which is the base of the others.

    What an earlier push made of another base tells nothing of the image that is to run.
    """
    inspected = engine_images.inspect(images[-1])
    base = base_of(images[-1], inspected) if inspected else None
    with_engine = [session for session in hosts.sessions if session.host.name in hosts.facts]
    for image in images:
        there = probes.images(with_engine, image)
        alike = len({(held.layers, held.mark) for held in there.values()}) == 1
        today = all(base is None or stands_on(base, held) for held in there.values())
        everywhere = alike and today and set(there) == set(hosts.facts)
        if everywhere:
            break
    return Seen(image, there, everywhere)


def _completed(want: Want, hosts: ReachedHosts, inside: bool) -> Want:
    """With the endpoint and the port a deploy would choose, and in words where the probe looks from."""
    facts = [hosts.facts[host.name] for host in hosts.cluster.hosts if host.name in hosts.facts]
    if facts and not want.endpoint and facts[0] is hosts.facts.get(hosts.cluster.hosts[0].name):
        try:
            address = plan.choose_address(facts, hosts.cluster.hosts[0].interface)
            want = replace(want, endpoint=address, port=plan.choose_port(facts[0]))
        except DeployError:
            pass  # the probes see the same, and say it with evidence
    return replace(want, where=INSIDE if inside else OUTSIDE)


def _engine(host: str, fault: DeployError) -> Finding:
    words = fault.message if fault.message.startswith(host) else f"{host}: {fault.message}"
    if isinstance(fault, DockerFault):
        cause, fix = fault.cause.name, fault.cause.hint(host)
    else:
        cause, fix = "docker-down", f"on {host}: {fault.hint}" if fault.hint else ""
    return Finding(cause, "hosts", (host,), words, (), "the run would not start there", fix)


def _architectures(hosts: ReachedHosts) -> Iterator[Finding]:
    """Hosts that no one image would run on."""
    machines = {host: facts.architecture for host, facts in hosts.facts.items()}
    if len(set(machines.values())) > 1:
        odd = tuple(host for host, name in machines.items() if name != next(iter(machines.values())))
        text = f"the hosts are of different architectures: {', '.join(f'{h} {m}' for h, m in machines.items())}"
        fix = "use hosts of one architecture: one image cannot run on both"
        yield Finding("architecture-differs", "software", odd, text, (), "`exec format error`", fix)


def _differing(seen: Seen, hosts: ReachedHosts) -> Iterator[Finding]:
    """Another image under the same name. No fault before a deploy, which brings the same image to all."""
    layers = {host: " ".join(held.layers) for host, held in seen.there.items()}
    if len(set(layers.values())) > 1:
        odd = odd_ones(layers)
        text = f"{seen.image} is not the same image everywhere: {', '.join(odd)} has other layers"
        fix = f"fab push --hosts {','.join(host.name for host in hosts.cluster.hosts)} brings the same to all"
        yield Finding("image-differs", "software", odd, text, (), "odd errors later", fix)


def _homes(hosts: ReachedHosts) -> Iterator[Finding]:
    """Hosts on which a run could keep nothing."""
    for host, facts in hosts.facts.items():
        if not facts.home_writable:
            text, fix = (
                f"{host}: {facts.home} cannot be written to",
                f"on {host}: ls -ld {facts.home}; mount | grep -w ro",
            )
            symptom = "`mkdir: cannot create directory`: the run would not start there"
            yield Finding("home-readonly", "resources", (host,), text, (), symptom, fix)
        elif facts.room is not None and facts.room < resources.DISK_LEAST:
            text = f"{host}: where runs are kept ({facts.home}/.muster) {facts.room >> 20} MiB are free"
            symptom, fix = (
                "`No space left on device`",
                f"on {host}: df -h {facts.home}/.muster; fab status shows old runs",
            )
            yield Finding("disk-full", "resources", (host,), text, (), symptom, fix)


def _mounts(answers: Answers, mounts: Mapping[str, Sequence[Mount]]) -> Iterator[Finding]:
    """Mounted folders that the run's processes may not use. Many are written to by nobody: that is no fault."""
    for host in answers.told:
        facts = answers.facts[host]
        tried, number = facts.get("mounts", {}), facts.get("user")
        for mount in mounts.get(host, ()):
            may, source = tried.get(mount.target, "rw"), quote(mount.source)
            if "r" not in may:
                text = f"{host}: {mount.source} cannot be read by uid {number}, which the run has there"
                fix = f"on {host}: sudo chmod -R o+rX {source} (the folders above it must be open as well)"
                yield Finding("mount-closed", "resources", (host,), text, (), "`Permission denied`", fix)
            elif "w" not in may and not mount.read_only:
                text = f"{host}: {mount.source} cannot be written by uid {number}, which the run has there"
                fix = f"on {host}: sudo chown -R {number} {source}; or, if it is only read, mount it with :ro"
                yield Finding("mount-closed", "resources", (host,), text, (), "`Permission denied`", fix, WARNING)


def _no_probe(fault: DeployError) -> tuple[str, str]:
    python = "python3" in fault.message and "not found" in fault.message
    return ("no-python" if python else "probe-died", _words(fault))


def _words(fault: DeployError) -> str:
    return "\n".join(filter(None, (fault.message, fault.hint)))
