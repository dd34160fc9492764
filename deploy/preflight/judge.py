"""From answers to a verdict: run every check, fold findings into those that explain them, put one cause first.

A check is a function `answers -> findings` in checks/; to add one, write it and add it to CHECKS. Their order is the
order of causes: a host that could not be asked is not blamed for its answers; a wrong name leads to a wrong address,
and a wrong address looks like a firewall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from .answers import Answers
from .checks import (
    bandwidth,
    cards,
    clocks,
    gpus,
    interfaces,
    link_quality,
    links,
    long_calls,
    mtu,
    names,
    ports,
    rdma,
    resources,
    software,
    unreachable,
    xid,
)
from .findings import FAULT, GROUPS, UNKNOWN, WARNING, Finding, Verdict

Check = Callable[[Answers], Iterable[Finding]]
CHECKS: tuple[Check, ...] = (
    unreachable.check,
    ports.check,
    cards.check,
    names.check,
    interfaces.check,
    links.check,
    mtu.check,
    long_calls.check,
    bandwidth.check,
    link_quality.check,
    clocks.check,
    software.check,
    gpus.check,
    xid.check,
    rdma.check,
    resources.check,
)
# Findings on links that are about one host each.
APART = ("other-network", "wrong-machine")
# What is a consequence where the cause on the left is found at one of its hosts.
EXPLAINS = {
    "image-differs": {"torch-differs", "nccl-differs", "cuda-differs", "python-differs", "image-without-python"},
    "torch-without-cuda": {"torch-differs", "cuda-differs", "gpu-missing"},
    "gpu-silent": {"gpu-missing", "gpu-xid"},
    "gpu-lost": {"gpu-missing", "gpu-xid"},
    "gpu-driver": {"gpu-missing", "gpu-xid"},
    "gpu-runtime": {"gpu-missing"},
    "gpu-faulty": {"gpu-xid"},
    "rdma-hidden": {"memlock"},
    "rdma-differs": {"rdma-gid"},
    "port-busy": {"wrong-machine"},
    "bridge-network": {"other-network", "no-route", "host-unreachable", "endpoint-nobody", "all-ports-dropped"},
    "duplicate-address": {
        "wrong-machine",
        "host-unreachable",
        "all-ports-dropped",
        "interface-loopback",
        "endpoint-twice",
    },
    "duplicate-mac": {"wrong-machine", "host-unreachable", "all-ports-dropped", "rendezvous-dropped", "link-loss"},
    "interface-down": {"host-unreachable", "no-route"},
    "same-hostname": {"peer-name-wrong", "endpoint-twice"},
    "name-loopback": {"endpoint-nobody", "peer-name-wrong", "family-mixed"},
    "name-unresolvable": {"endpoint-nobody", "peer-name-unresolvable", "family-mixed"},
    "name-foreign": {"endpoint-nobody", "peer-name-wrong", "family-mixed"},
    "endpoint-unresolvable": {"endpoint-nobody", "peer-name-unresolvable"},
    "ipv6-blackhole": {"data-ports-dropped", "all-ports-dropped", "one-way", "rendezvous-dropped"},
    "interface-no-address": {"no-route", "host-unreachable", "all-ports-dropped"},
    "mtu-blackhole": {"link-slow", "link-loss"},
    "link-loss": {"link-slow", "mtu-blackhole"},
    "link-slow": {"link-loss", "mtu-blackhole"},
    "open-files": {"all-ports-rejected", "data-ports-rejected", "rendezvous-rejected"},
    "few-ports": {"no-route", "host-unreachable", "data-ports-rejected"},
    "endpoint-foreign": {"rendezvous-dropped", "rendezvous-rejected", "wrong-machine", "no-route"},
    "endpoint-loopback": {"endpoint-twice", "endpoint-nobody"},
}


# Groups of checks that take two hosts which answer.
BETWEEN = ("links", "mtu", "clocks")


def judge(answers: Answers, more: Iterable[Finding] = ()) -> Verdict:
    """The verdict. `more`: findings from elsewhere (Docker, the proof), judged with the rest."""
    findings = [*more, *(finding for check in CHECKS for finding in check(answers))]
    order = {FAULT: 0, UNKNOWN: 1, WARNING: 2}
    findings = _folded(_merged(sorted(findings, key=lambda finding: order[finding.level])))
    groups = {group: _outcome(group, findings, answers) for group in GROUPS}
    return Verdict(tuple(findings), groups, answers.hosts, answers.seconds, answers.request.where)


def _merged(findings: list[Finding]) -> list[Finding]:
    """The same cause on several hosts is one finding."""
    merged: dict[tuple[str, str], Finding] = {}
    for number, finding in enumerate(findings):
        alone = (
            len(finding.hosts) == 1 and finding.link is None and (finding.group != "links" or finding.cause in APART)
        )
        key = (finding.cause, finding.level) if alone else (finding.cause, str(number))
        first = merged.get(key)
        if first is None:
            merged[key] = finding
        elif finding.hosts[0] not in first.hosts:
            merged[key] = replace(
                first,
                hosts=first.hosts + finding.hosts,
                text=f"{first.text}; {finding.text}",
                evidence=(first.evidence + finding.evidence)[:4],
                fix=first.fix if finding.fix == first.fix else f"{first.fix}; {finding.fix}",
            )
    return list(merged.values())


def _folded(findings: list[Finding]) -> list[Finding]:
    """Without what an earlier finding explains; that one keeps the words."""
    remaining: list[Finding] = []
    for finding in findings:
        for number, cause in enumerate(remaining):
            same = finding.cause == cause.cause and finding.hosts == cause.hosts
            if same or (finding.cause in EXPLAINS.get(cause.cause, ()) and set(finding.hosts) & set(cause.hosts)):
                remaining[number] = replace(cause, follows=(*cause.follows, finding.text))
                break
        else:
            remaining.append(finding)
    return remaining


def _outcome(group: str, findings: list[Finding], answers: Answers) -> str:
    levels = [finding.level for finding in findings if finding.group == group]
    if group == "proof" and not levels:
        return ""
    nobody = len(answers.hosts_with_facts) < (min(2, len(answers.hosts)) if group in BETWEEN else 1)
    if group not in ("hosts", "proof") and nobody and not levels:
        return UNKNOWN
    return next((level for level in (FAULT, UNKNOWN, WARNING) if level in levels), "ok")
