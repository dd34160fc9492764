"""Turn the answers of a rehearsal (node/probe/rehearsal.py) into findings: which host failed, where and why. Pure.

If a host fails alone, the fault is its own. If ranks fail together, the cause is a host whose own error shows a fault,
not the hosts that only lost their connection to it. If no host has such an error, the finding is about the pair, or
about no particular host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote

from ..causes import docker_faults
from ..causes.finding import LOOKS, UNKNOWN, WARNING, Finding, find, unsure
from ..causes.rehearsal_faults import sign_of
from ..causes.table import ROWS
from ..core.errors import SIGNALLED
from ..core.facts import ended_how
from ..core.program import host_fields
from ..core.text import amount, in_seconds, listed, several
from ..host.reached import NoAnswer
from ..job.option_words import command_of
from . import nccl_log, refusals
from .networks import is_overlay
from .request import Facts

# Errors of a rank that lost another rank, or waited for it in vain.
_VICTIM = re.compile(
    r"closed by peer|reset by peer|timed? ?out|recv, got 0 bytes|broken pipe|"
    r"remote process exited|connection was (?:likely )?closed|failed to (?:send|recv)",
    re.IGNORECASE,
)
# The reason in an NCCL log (nccl_log.REASONS) -> what to do.
_REMEDY = {
    "NCCL_IB_DISABLE=1 is set": "remove NCCL_IB_DISABLE from the run's environment",
    "NCCL_NET=Socket is set": "remove NCCL_NET from the run's environment",
    "the image has no libibverbs": "an image with libibverbs1 and ibverbs-providers: muster docs my-own-image",
    "its plugin found no EFA device": "Muster gives no EFA device to a run: use hosts without EFA, or accept sockets",
    "its libfabric found no RDMA provider, and used TCP": "Muster gives no EFA device to a run: accept TCP",
    "it found no InfiniBand or RoCE device with an active port": "on each host: ibstat; ls /dev/infiniband",
}
# If an all_reduce is slower than both of these limits, no run can train.
_CRAWL_S, _CRAWL_MBIT = 10.0, 20.0
_REMOTE = re.compile(r"\[(?:::ffff:)?([0-9a-fA-F.:]{3,45})\]:\d")


@dataclass(frozen=True)
class Outcome:
    """How a phase went on one host: its answer; or `fault`, why there is none.

    `waits`: the host was still waiting for another one that had failed.
    """

    answer: Facts = field(default_factory=dict)
    fault: NoAnswer | None = None
    waits: bool = False

    @property
    def ranks(self) -> Sequence[Facts]:
        """The answer of each rank on the host."""
        ranks: Sequence[Facts] = self.answer.get("ranks", ())
        return ranks

    @property
    def succeeded(self) -> bool:
        """Whether all its ranks completed the phase."""
        return bool(self.ranks) and all(rank.get("right") for rank in self.ranks)

    @property
    def errors(self) -> list[str]:
        """The text of each failure; for a rank that died without an error, how it died."""
        return [_words(rank) for rank in self.failures]

    @property
    def failures(self) -> list[Facts]:
        """The answer of each rank that failed, and each error that is of no rank."""
        first = [{"error": word} for word in (self.fault and self.fault.text, self.answer.get("error")) if word]
        return [*first, *(rank for rank in self.ranks if not rank.get("right"))]

    @property
    def has_own_error(self) -> bool:
        """Whether an error shows more than that another host was missing."""
        return not all(map(_is_victim, self.failures))


@dataclass(frozen=True)
class Scene:
    """The conditions of the rehearsal. `runs`: by host, the folder of the runs; `addresses`: by host, all addresses.

    `interfaces`: by host, the interface that the run uses, empty if the program chose it. `fabric`: the hosts that have
    InfiniBand, RoCE or a cloud's own RDMA network. `image`: the image in which the ranks run; empty: without an image.
    """

    hosts: Sequence[str]
    backend: str
    endpoint: str
    runs: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, frozenset[str]] = field(default_factory=dict)
    interfaces: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[str, str] = field(default_factory=dict)
    fabric: frozenset[str] = frozenset()
    image: str = ""


def findings(outcomes: Mapping[str, Outcome], scene: Scene) -> list[Finding]:
    """Return the findings of a rehearsal; none if all went well."""
    without = [host for host, outcome in outcomes.items() if outcome.answer.get("torch") == ""]
    if without:
        fix = "name the Python that has your torch: --python PATH"
        if scene.image:
            look = f"docker run --rm --entrypoint sh {quote(scene.image)} -c 'command -v python python3; echo $PATH'"
            fix = f"on {listed(without)}: {look}   (the first one has no torch); "
            fix += f"an image that has it: {command_of('push', hosts=','.join(without))}"
        return [
            find(
                "no-proof",
                tuple(without),
                f"nothing was rehearsed: there is no torch where training would run ({listed(without)})",
                fix,
                WARNING,
            )
        ]
    bad = {host: outcome for host, outcome in outcomes.items() if not outcome.succeeded}
    own = {host: outcome for host, outcome in bad.items() if _has_own_fault(outcome)}
    faults = [_of_host(host, outcome, scene) for host, outcome in own.items()]
    if bad and not own:
        faults = [_between(bad, scene)]
    return faults + list(_crawling(outcomes, scene)) + list(_warnings(outcomes)) + list(_unused(outcomes, scene))


def judged(outcomes: Mapping[str, Outcome], scene: Scene, long: int) -> tuple[list[Finding], str]:
    """Return the findings of a rehearsal, and a summary of its result, which is empty if any host failed."""
    right = all(outcome.succeeded for outcome in outcomes.values())
    return findings(outcomes, scene), summary(outcomes, long) if right else ""


def summary(outcomes: Mapping[str, Outcome], long: int) -> str:
    """Describe the result of a rehearsal that went well."""
    ranks = [rank for outcome in outcomes.values() for rank in outcome.ranks]
    slowest = max((rank.get("seconds", 0.0) for rank in ranks), default=0.0)
    if len(ranks) < 2:
        return f"{several(len(ranks), 'rank')} wrote, loaded and computed"
    log = log_of(outcomes)
    way = f"; {nccl_log.summary(log)}" if log.network or log.ways else ""
    return f"{several(len(ranks), 'rank')} met, and summed {amount(long)} in {in_seconds(slowest, 2)}{way}"


def _crawling(outcomes: Mapping[str, Outcome], scene: Scene) -> Iterator[Finding]:
    """Yield a finding if the all_reduce worked but took so long that a run's steps would take minutes or time out."""
    ranks = [rank for outcome in outcomes.values() for rank in outcome.ranks if rank.get("seconds")]
    slowest = max(ranks, key=lambda rank: rank["seconds"], default={})
    seconds = slowest.get("seconds", 0.0)
    if len(scene.hosts) < 2 or seconds < _CRAWL_S or 8 * slowest.get("mb", 0) / seconds >= _CRAWL_MBIT:
        return
    text = f"the rehearsal's {slowest['step']} took {in_seconds(seconds)} between {listed(scene.hosts)}"
    fix = f"{command_of('preflight', hosts=','.join(scene.hosts), bandwidth=True)} shows which link it is"
    # The user asks for --overlay if no other network connects the hosts: then its slowness is only a warning.
    if all(map(is_overlay, scene.interfaces.values())) and scene.interfaces:
        yield find("link-slow", tuple(scene.hosts), text, fix, WARNING, group="proof")
        return
    yield unsure(find("link-slow", tuple(scene.hosts), text, fix, group="proof"))


def log_of(outcomes: Mapping[str, Outcome]) -> nccl_log.NcclLog:
    """Return what NCCL logged in a rehearsal, on all hosts."""
    ranks = [rank for outcome in outcomes.values() for rank in outcome.ranks]
    return nccl_log.read(line for rank in ranks for line in rank.get("nccl", ()))


def _unused(outcomes: Mapping[str, Outcome], scene: Scene) -> Iterator[Finding]:
    """Yield a finding if hosts have an RDMA network but NCCL uses sockets: training works, 10 to 50 times slower."""
    hosts = tuple(host for host in scene.hosts if host in scene.fabric)
    log = log_of({host: outcomes[host] for host in hosts if host in outcomes})
    if scene.backend != "nccl" or len(scene.hosts) < 2 or not hosts:
        return
    if not (log.network or log.ways or log.sockets) and all(outcome.succeeded for outcome in outcomes.values()):
        yield find(
            "fabric-unused",
            hosts,
            f"could not tell whether NCCL uses the RDMA network of {listed(hosts)}: NCCL's log does not say",
            level=WARNING,
            symptom="steps may be 10 to 50 times slower",
        )
    if not log.sockets:
        return
    why = log.reason or "its log does not say why"
    by = f" ({', '.join(log.interfaces)})" if log.interfaces else ""
    shown = sorted({f"{sender} -> {receiver} by {way}" for (sender, receiver), way in log.between.items()})[:4]
    yield find(
        "fabric-unused",
        hosts,
        f"{listed(hosts)} {'has' if len(hosts) == 1 else 'have'} an RDMA network, but NCCL uses sockets{by}: {why}",
        f"{_REMEDY.get(log.reason, 'NCCL_DEBUG=INFO in the run shows its choice')}; then: muster preflight again",
        WARNING,
        evidence=shown,
    )


def _has_own_fault(outcome: Outcome) -> bool:
    """Whether the host's own errors show a fault, and not only that another host was missing."""
    if outcome.waits:
        return False
    return outcome.has_own_error or outcome.answer.get("phase") == "alone"


def _words(rank: Facts) -> str:
    """Return what a failed rank reported."""
    return str(rank.get("error") or _died(rank))


def _is_victim(rank: Facts) -> bool:
    """Whether a failed rank only lost another rank, or waited for it in vain."""
    return "missed" in rank or "late" in rank.get("seen", ()) or bool(_VICTIM.search(_words(rank)))


def _died(rank: Facts) -> str:
    """Describe how a rank or a container ended that reported no error."""
    how = ended_how(-rank["signal"] if rank.get("signal") else rank.get("code", -1))
    return f"{how}; its last words: {rank['words']}" if rank.get("words") else how


def _of_host(host: str, outcome: Outcome, scene: Scene) -> Finding:
    """Return the finding for a host that failed by itself."""
    if outcome.fault:
        return _lost(host, outcome.fault, scene)
    rank = next(iter(sorted(outcome.failures, key=_is_victim)), {"error": "no answer"})
    words = _words(rank)
    step = rank.get("step") or ("start" if outcome.ranks else "import torch")
    own = "local" in rank and len(outcome.ranks) > 1
    where = f"{host}, rank {rank['local']} of {len(outcome.ranks)} there" if own else host
    evidence = [f"{host}: {text}" for text in outcome.errors[:4] if text != words]
    return _finding(host, f"{where}: the rehearsal failed at `{step}`: {words}", words, rank, evidence, scene)


def _lost(host: str, fault: NoAnswer, scene: Scene) -> Finding:
    """Return the finding for a host whose container stopped answering."""
    if fault.kind in ("slow", "unstarted"):
        return find(
            "proof-failed",
            host,
            f"the rehearsal did not start in time: {fault.text}",
            f"on {host}: time docker run --rm IMAGE true; uptime",
            UNKNOWN,
            symptom="a start that takes minutes",
        )
    code, last = fault.ended or (-1, "")
    if docker_faults.gives_no_connection(last):  # a run starts there all the same, because it attaches to no container
        return find(
            "no-proof",
            (host,),
            f"nothing was rehearsed: {host} allows no connection to a container: {last}",
            docker_faults.hint(last, host),
            WARNING,
        )
    if docker_faults.read_cause(last):
        return refusals.of_words(host, "proof", refusals.describe_end("the run's container", code), last)
    if code > SIGNALLED:
        words = _died({"signal": code - SIGNALLED, "words": last})
        return _finding(host, f"{host}: the run's container died: {words}", words, {}, (), scene)
    text = f"{host}: the rehearsal ended: {fault.text}"
    at = {"at": "write"} if "mkdir" in last or "rehearsal-" in last else {}
    return _finding(host, text, last, at, (), scene)


def _finding(host: str, seen: str, words: str, rank: Facts, evidence: Sequence[str], scene: Scene) -> Finding:
    """Return the finding for a failure: its own words, then the cause that they and the rank's facts suggest."""
    facts = rank.get("seen", ())
    sign = sign_of(words, rank.get("at", ""), facts)
    if sign is None:
        return find(
            "proof-failed",
            (host,),
            seen,
            f"on {host}: these are its last words; `{command_of('preflight', hosts=host)}` tries only that host",
            UNKNOWN,
            evidence=evidence,
            symptom="training fails there the same way",
        )
    memory = scene.memory.get(host, "")
    runs = quote(scene.runs[host]) if host in scene.runs else "~/.muster/runs"
    fix = sign.fix.format(host=host, **host_fields(host), runs=runs, memory=f" (now {memory})" if memory else "")
    sure = sign.proved_by(words, facts)
    text = seen if sure else f"{seen}{LOOKS}{ROWS[sign.cause].what or sign.cause}"
    finding = find(sign.cause, (host,), text, fix, evidence=evidence, symptom=sign.symptom, group="proof")
    return finding if sure else unsure(finding)


def _between(bad: Mapping[str, Outcome], scene: Scene) -> Finding:
    """Return the finding if every host only lost others. It is about hosts that did not come, a pair, or no host."""
    outcomes = {host: outcome for host, outcome in bad.items() if not outcome.waits}
    evidence = [f"{host}: {text}" for host, outcome in outcomes.items() for text in outcome.errors[:1]][:5]
    steps = {rank["step"] for outcome in outcomes.values() for rank in outcome.ranks if rank.get("step")}
    step = next(iter(steps)) if len(steps) == 1 else "the collectives"
    first = scene.hosts[0]
    absent = _absent(outcomes, scene)
    if absent and first not in absent:
        do = "does" if len(absent) == 1 else "do"
        # A rehearsal only starts after the probes' calls have passed, so plain calls work.
        text = (
            f"{listed(absent)} {do} not reach the rendezvous store at {scene.endpoint}, although plain connections pass"
        )
        port = scene.endpoint.rpartition(":")[2]
        return find(
            "proof-failed",
            absent,
            text,
            f"on {first}: allow TCP {port} from {listed(absent)}; on {absent[0]}: {_nc(scene)}",
            UNKNOWN,
            evidence=evidence,
            symptom="all nodes hang, then `timed out while trying to connect`",
            link=(absent[0], first) if len(absent) == 1 else None,
        )
    pairs = {frozenset((host, peer)) for host, outcome in outcomes.items() for peer in _named(host, outcome, scene)}
    if len(pairs) == 1:
        side, other = sorted(next(iter(pairs)), key=list(scene.hosts).index)
        return find(
            "proof-failed",
            (side, other),
            f"`{step}` fails between {_at(side, scene)} and {_at(other, scene)}: either end may be the cause",
            f"on {side} and on {other}: sudo iptables -S; sudo nft list ruleset (TCP 1024-65535 between them)",
            UNKNOWN,
            evidence=evidence,
            symptom="a hang",
            link=(side, other),
        )
    return find(
        "proof-failed",
        tuple(bad),
        f"`{step}` fails between {listed(bad)}, but none of them shows a fault of its own",
        "run muster preflight with two of the hosts at a time: it shows which pair fails",
        UNKNOWN,
        evidence=evidence,
        symptom="a hang, until the timeout",
    )


def _absent(outcomes: Mapping[str, Outcome], scene: Scene) -> tuple[str, ...]:
    """Return the hosts that other hosts waited for at the rendezvous."""
    numbers = {rank["missed"] for outcome in outcomes.values() for rank in outcome.failures if "missed" in rank}
    return tuple(host for place, host in enumerate(scene.hosts) if place in numbers)


def _named(host: str, outcome: Outcome, scene: Scene) -> Iterator[str]:
    """Yield the peers whose addresses are in a host's errors."""
    for address in (address for text in outcome.errors for address in _REMOTE.findall(text)):
        yield from (peer for peer, own in scene.addresses.items() if peer != host and address in own)


def _at(host: str, scene: Scene) -> str:
    interface = scene.interfaces.get(host, "")
    return f"{host} ({interface})" if interface else host


def _nc(scene: Scene) -> str:
    address, _, port = scene.endpoint.rpartition(":")
    return f"nc -vz {address.strip('[]')} {port}"


def _warnings(outcomes: Mapping[str, Outcome]) -> Iterator[Finding]:
    """Yield a warning for each mounted folder whose permissions allow the run to write, but where writing fails."""
    for host, outcome in outcomes.items():
        for folder, why in outcome.answer.get("warnings", ()):
            yield find(
                "mount-closed",
                host,
                f"the run cannot write to its folder {folder}: {why}",
                level=WARNING,
                symptom=f"`{why}`",
                group="proof",
            )
