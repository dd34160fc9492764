"""Turn answers into a verdict: run every check, drop findings that another one explains, and put one cause first.

A check is a function `answers -> findings` in checks/. To add one, write it, add it to CHECKS, and add the row of its
cause to deploy/causes/rows/; that row also lists the causes that it explains. The order of CHECKS goes from cause to
effect: a host that could not be asked must not be blamed for missing answers; a wrong name leads to a wrong address,
and a wrong address looks like a firewall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..causes.finding import FAULT, UNKNOWN, WARNING, Finding
from ..causes.table import EXPLAINS, ROWS
from ..core.text import listed
from . import confidence, networks, refusals, remedies
from .answers import Answers
from .checks import (
    bandwidth,
    clocks,
    gpus,
    interfaces,
    link_quality,
    links,
    names,
    payloads,
    ports,
    rdma,
    resources,
    software,
)
from .verdict import GROUPS, Verdict

Check = Callable[[Answers], Iterable[Finding]]
CHECKS: tuple[Check, ...] = (
    refusals.check,
    ports.check,
    interfaces.check_cards,
    names.check,
    interfaces.check,
    links.check,
    payloads.check,
    payloads.check_long_calls,
    bandwidth.check,
    link_quality.check,
    clocks.check,
    software.check,
    gpus.check,
    gpus.check_xids,
    rdma.check,
    resources.check,
)
# Causes in the group `links` that are about one host, not about a pair.
SINGLE_HOST_CAUSES = ("other-network", "wrong-machine")
# Groups of checks that need at least two hosts that answer.
PAIR_GROUPS = ("links", "mtu", "clocks")
# If many hosts have the same cause, its text describes at most this many of them; its `hosts` lists all.
MOST_MERGED = 8


def judge_rehearsed(answers: Answers, before: Iterable[Finding], findings: Sequence[Finding], shown: str) -> Verdict:
    """Return the verdict on the findings before a rehearsal (`before`) and in it; `shown`: its result, in words."""
    verdict = judge(answers, [*before, *findings])
    without = next((finding.text for finding in findings if finding.cause == "no-proof"), "")
    groups = {**verdict.groups, "proof": verdict.groups["proof"] or "ok"}
    return replace(verdict, groups=groups, rehearsed=shown, not_rehearsed=without)


def judge(answers: Answers, more: Iterable[Finding] = ()) -> Verdict:
    """Return the verdict. `more`: findings from elsewhere (Docker, the rehearsal), judged with those of the checks."""
    findings = _suspects([*more, *(finding for check in CHECKS for finding in check(answers))])
    order = {FAULT: 0, UNKNOWN: 1, WARNING: 2}

    # A finding that is only a likely cause explains its consequences just as a certain one does.
    def weight(each: Finding) -> tuple[int, bool]:
        level = FAULT if each.or_else and each.level == UNKNOWN else each.level
        return order[level], _is_crawl(each)

    likely = sorted(findings, key=weight)
    findings = _folded(_merged(likely))
    # Certain causes come before likely ones.
    findings = sorted(confidence.ranked(findings, answers), key=lambda finding: order[finding.level])
    groups = {group: _outcome(group, findings, answers) for group in GROUPS}
    findings = [remedies.with_path_fix(finding, answers) for finding in findings]
    verdict = Verdict(tuple(findings), groups, answers.hosts, answers.seconds, answers.request.where)
    verdict = replace(verdict, network=networks.description(answers, verdict.ok))
    if verdict.ok:
        return verdict
    return replace(verdict, unexplained=_unexplained(answers, findings))


def _suspects(findings: list[Finding]) -> list[Finding]:
    """Return the findings, and raise the level of those warnings that explain what else was seen.

    A slow name look-up is the likely cause if the rehearsal failed on that host, and a bad link if the rehearsal was
    slow. Large packets that are lost in one direction are the cause if a connection of the same pair was cut.
    """
    failing = {host for finding in findings if finding.cause == "proof-failed" for host in finding.hosts}
    severed = [finding for finding in findings if finding.cause == "connection-cut" and finding.level == FAULT]
    cut = {frozenset(cell) for finding in severed for cell in finding.cells}

    crawled = any(map(_is_crawl, findings))

    def with_raised_level(finding: Finding) -> Finding:
        if crawled and ROWS[finding.cause].from_many_packets and finding.level == WARNING:
            return replace(finding, level=UNKNOWN, or_else=("something else between the hosts",))
        if finding.cause == "name-unresolvable" and finding.level == WARNING and failing & {*finding.hosts}:
            return replace(finding, level=UNKNOWN, or_else=("something else between the hosts",))
        if finding.cause == "mtu-blackhole" and cut & {frozenset(cell) for cell in finding.cells}:
            return replace(finding, level=FAULT, symptom=payloads.SYMPTOM)
        return finding

    return [with_raised_level(finding) for finding in findings]


def _is_crawl(finding: Finding) -> bool:
    """Whether the finding says that the rehearsal was slow, which does not show where the fault is."""
    return (finding.cause, finding.group) == ("link-slow", "proof")


def _unexplained(answers: Answers, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Describe failed calls between hosts that no finding covers, neither by its pairs nor by its hosts."""
    cells = {cell for finding in findings for cell in finding.cells}
    hosts = {host for finding in findings if not finding.cells for host in finding.hosts}
    failed = confidence.failed_calls(answers)
    left = [link for link in answers.links if link in failed and link.ends not in cells and not link.pair & hosts]
    return tuple({link.ends: link.describe() for link in left}.values())[:4]


def _merged(findings: list[Finding]) -> list[Finding]:
    """Merge findings: the same cause on several hosts becomes one finding, with text and fixes from the first hosts."""
    merged: dict[tuple[str, str], Finding] = {}
    others: dict[tuple[str, str], list[Finding]] = {}
    for number, finding in enumerate(findings):
        alone = (
            len(finding.hosts) == 1
            and finding.link is None
            and (finding.group != "links" or finding.cause in SINGLE_HOST_CAUSES)
        )
        key = (finding.cause, finding.level) if alone else (finding.cause, str(number))
        first = merged.get(key)
        if first is None:
            merged[key] = finding
        elif finding.hosts[0] in first.hosts:
            continue
        elif len(first.hosts) >= MOST_MERGED:
            others.setdefault(key, []).append(finding)
            cells = tuple(dict.fromkeys((*first.cells, *finding.cells)))
            merged[key] = replace(first, hosts=first.hosts + finding.hosts, cells=cells)
        else:
            merged[key] = replace(
                first,
                hosts=first.hosts + finding.hosts,
                text=f"{first.text}; {finding.text}",
                evidence=(first.evidence + finding.evidence)[:4],
                cells=tuple(dict.fromkeys((*first.cells, *finding.cells))),
                fix=first.fix if finding.fix == first.fix else f"{first.fix}; {finding.fix}",
            )
    for key, more in others.items():
        first, alike = merged[key], listed(finding.hosts[0] for finding in more)
        own_fix = f"; and the same on {alike}" if any(finding.fix != first.fix for finding in more) else ""
        merged[key] = replace(first, text=f"{first.text}; and the same for {alike}", fix=first.fix + own_fix)
    return list(merged.values())


def _folded(findings: list[Finding]) -> list[Finding]:
    """Drop each finding that an earlier one explains; the earlier one keeps its text in `follows`."""
    remaining: list[Finding] = []
    for finding in findings:
        for number, cause in enumerate(remaining):
            same = finding.cause == cause.cause and finding.hosts == cause.hosts
            about = set(finding.hosts) & set(cause.hosts) or set(finding.cells) & set(cause.cells)
            if same or (about and finding.cause in EXPLAINS[cause.cause]):
                cells = tuple(dict.fromkeys((*cause.cells, *finding.cells)))
                remaining[number] = replace(cause, follows=(*cause.follows, finding.text), cells=cells)
                break
        else:
            remaining.append(finding)
    return remaining


def _outcome(group: str, findings: list[Finding], answers: Answers) -> str:
    levels = [finding.level for finding in findings if finding.group == group]
    if group == "proof" and not levels:
        return ""
    nobody = len(answers.facts) < (min(2, len(answers.hosts)) if group in PAIR_GROUPS else 1)
    if group not in ("hosts", "proof") and nobody and not levels:
        return UNKNOWN
    return next((level for level in (FAULT, UNKNOWN, WARNING) if level in levels), "ok")
