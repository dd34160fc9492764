"""How much of what failed each finding explains, and whether that makes it sure. Pure.

An observation is a call that failed, and how. A cause explains it if it is about these two hosts, about such calls, and
if calls fail in this way because of it. A cause is sure if it explains most of what it is about, and no other finding
explains all of that too. Otherwise the verdict is `not-known`: it names every cause that is left, the likeliest first.

How calls fail is one piece of evidence, and each way has several causes. So such a cause stays sure only if a second
piece singles it out (singled_out); otherwise the finding says what was seen, and what that looks like.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from ..causes.finding import FAULT, UNKNOWN, WARNING, Finding, find, unsure
from ..causes.row import AIMLESS, LOST
from ..causes.table import ROWS
from ..core.text import binary, listed
from . import reachability
from .answers import Answers, Link, Pair
from .verdict import Verdict

Observations = frozenset[Link]
# By the first word of a cause, the calls that it is about.
ABOUT = {"rendezvous": {"rendezvous", "store", "hint"}, "data": {"data"}}


def failed(answers: Answers) -> Observations:
    """The calls between two hosts that did not end well, apart from those that only look for another way."""
    return frozenset(link for link in answers.links if not link.ok and link.outward and "other" not in link.kinds)


def explained(finding: Finding, seen: Observations) -> Observations:
    """What a finding explains of the observations."""
    outcomes, kinds = ROWS[finding.cause].fails, ABOUT.get(finding.cause.partition("-")[0])
    return frozenset(
        link
        for link in claimed(finding, seen)
        if (outcomes is None or link.outcome in outcomes) and (kinds is None or kinds & set(link.kinds))
    )


def claimed(finding: Finding, seen: Observations) -> Observations:
    """The observations between the hosts that a finding is about."""
    cells = set(finding.cells)  # many hosts have thousands
    return frozenset(link for link in seen if link.ends in cells)


def ranked(findings: Sequence[Finding], answers: Answers) -> list[Finding]:
    """Faults about links in the order of how much they explain, each with that in words; the first one if it is sure.

    A fault of a host comes before them: a wrong name or a busy port is seen whole, and a link only from outside.
    """
    seen, ordered = failed(answers), list(findings)
    every = _pairs(seen)
    for number, finding in enumerate(ordered):
        if finding.level == FAULT and (mine := _pairs(explained(finding, seen))):
            words = f"explains {len(mine)} of {len(every)} pairs of hosts with failed connections"
            ordered[number] = replace(finding, explains=words)
    places = [number for number, finding in enumerate(ordered) if finding.level == FAULT and finding.cells]
    # What hosts say of themselves (two have one address) is seen whole: it comes before what calls only suggest.
    by_weight = sorted(
        (ordered[place] for place in places),
        key=lambda finding: (ROWS[finding.cause].fails is not None, -len(_pairs(explained(finding, seen)))),
    )
    for place, finding in zip(places, by_weight, strict=True):
        ordered[place] = finding
    ordered = _settled(ordered, seen)
    unexplained = every - {cell for finding in ordered for cell in finding.cells}
    if unexplained and not any(finding.level in (FAULT, UNKNOWN) for finding in ordered):
        ordered += _not_known(answers, unexplained)
    return [_described(finding, answers, seen) for finding in ordered]


def _described(finding: Finding, answers: Answers, seen: Observations) -> Finding:
    """The finding; if it is inferred from calls alone: what was seen of them, then what that looks like."""
    inferred = finding.level == FAULT and ROWS[finding.cause].inferred
    undecided = finding.cause == "not-known" and bool(finding.odd)
    if not (inferred or undecided) or (inferred and singled_out(finding, answers)):
        return finding
    mine = explained(finding, seen) or claimed(finding, seen)
    seen_here = seen_in_words(answers, set(finding.cells), {link.outcome for link in mine})
    return unsure(finding, seen_here)


def singled_out(finding: Finding, answers: Answers) -> bool:
    """Whether a second piece of evidence, beside the calls that failed, says the same as a cause inferred from them."""
    cells = set(finding.cells)
    tried = [link for link in answers.links if link.ends in cells]
    about = [link for link in tried if not link.ok]
    settled = SETTLES.get(ROWS[finding.cause].settled_by)
    if settled and (sure := settled(finding, answers, about, tried)) is not None:
        return sure
    for link in about:
        ports = "self" if "data" in link.kinds else "rendezvous"
        if link.target in finding.hosts and reachability.closed_to_itself(answers, link.target, ports):
            return True
    rules = [rule for host in finding.hosts for rule in answers.grown(host)]
    return any(_may_drop(rule, link.port) for rule in rules for link in about)


def _have_no_way(finding: Finding, answers: Answers, about: Sequence[Link], tried: Sequence[Link]) -> bool:
    """Whether a caller's own kernel says that it has no way."""
    return bool(reachability.no_way(answers, about))


def _sizes_differ(finding: Finding, answers: Answers, about: Sequence[Link], tried: Sequence[Link]) -> bool | None:
    """True if the interfaces of these hosts take packets of different sizes; else the firewalls may tell."""
    hosts = {host for cell in finding.cells for host in cell if host in answers.facts}
    sizes = {answers.card(host).get("mtu", 0) for host in hosts}
    return len(sizes - {0}) > 1 or None


# By what a row is settled: whether it is, from the calls about it that failed, and from all; None: look further.
SETTLES: dict[str, Callable[[Finding, Answers, Sequence[Link], Sequence[Link]], bool | None]] = {
    "delay": lambda finding, answers, about, tried: any(link.ms for link in tried),
    # A rate is measured where a payload has passed whole.
    "rate": lambda finding, answers, about, tried: any(link.ok and link.both_s for link in tried),
    "way": _have_no_way,
    # What ARP does not answer is closed on every port.
    "neighbours": lambda finding, answers, about, tried: (
        {link.outcome for link in tried} <= {"no-arp", "wrong-card", *AIMLESS, *LOST}
    ),
    "answerer": lambda finding, answers, about, tried: any(
        link.outcome in ("stranger", "other-run") or link.host for link in about
    ),
    "sizes": _sizes_differ,
}


def _may_drop(rule: str, port: int) -> bool:
    """Whether a rule whose count grew may have lost calls to this port: it may be about other packets."""
    if re.search(r" -p (?!tcp\b)\w+", rule):
        return False
    named = re.search(r"--d(?:estination-)?ports? (\S+)", rule)
    if not named or f"! {named[0]}" in rule:
        return True
    ranges = [part.partition(":") for part in named[1].split(",")]
    return any(
        not low.isdigit() or int(low) <= port <= int(high if high.isdigit() else 65535 if colon else low)
        for low, colon, high in ranges
    )


def _settled(findings: list[Finding], seen: Observations) -> list[Finding]:
    """The findings; if the first fault is not sure, `not-known` in its place, and in that of its rivals."""
    first = next((finding for finding in findings if finding.level == FAULT), None)
    if first is None or ROWS[first.cause].fails is None or not first.cells:
        return findings
    about, mine = claimed(first, seen), explained(first, seen)
    rivals = [
        finding
        for finding in findings
        if finding is not first
        and finding.level in (FAULT, WARNING)
        and finding.cause != first.cause
        and (explained(finding, seen) >= mine if mine else _as_likely(finding, first))
    ]
    little = 2 * len(mine) < len(about)
    if not rivals and not little:
        return findings
    rest = [finding for finding in findings if finding is not first and finding not in rivals]
    return [*rest, _undecided(first, rivals, len(mine), len(about))]


def _as_likely(finding: Finding, first: Finding) -> bool:
    """Whether a fault is about the same hosts as one that only calls beside the run's own have shown."""
    return finding.level == FAULT and ROWS[finding.cause].fails is not None and set(finding.cells) >= set(first.cells)


def _undecided(first: Finding, rivals: Sequence[Finding], mine: int, about: int) -> Finding:
    every = sorted([first, *rivals], key=lambda finding: not (ROWS[finding.cause].measured and finding.level == FAULT))
    causes = " or ".join(dict.fromkeys(finding.cause for finding in every))
    text = "; or ".join(finding.text for finding in every)
    explains = (
        f"{causes} {'explains' if not rivals else 'explain equally well'} {mine} of {about} failed connections"
        if about
        else ""
    )
    return replace(
        first,
        cause="not-known",
        text=text,
        evidence=tuple(dict.fromkeys(line for finding in every for line in finding.evidence))[:6],
        fix="; or ".join(dict.fromkeys(finding.fix for finding in every)),
        level=UNKNOWN,
        follows=tuple(line for finding in every for line in finding.follows),
        odd=tuple(dict.fromkeys(finding.cause for finding in every)),
        explains=explains,
    )


def _pairs(links: Iterable[Link]) -> set[Pair]:
    return {link.ends for link in links}


def _not_known(answers: Answers, unexplained: set[Pair]) -> Iterable[Finding]:
    """Calls failed, and no rule knows why: what is odd, in order."""
    links = [link for link in answers.links if not link.ok and link.ends in unexplained]
    needed = [
        link
        for link in links
        if {"rendezvous", "store"} & set(link.kinds)
        or ("data" in link.kinds and reachability.opens(answers, *link.ends))
    ]
    if needed:
        hosts = tuple(host for host in answers.hosts if any(host in pair for pair in unexplained))
        yield find(
            "not-known",
            hosts,
            f"{len(needed)} connections between {listed(hosts)} failed in an unknown way; this is what is odd",
            level=UNKNOWN,
            evidence=tuple(dict.fromkeys(link.describe() for link in needed))[:4],
            cells=tuple(sorted(unexplained)),
        )


# How many calls end, by their outcome.
_HOW = {
    "dropped": "get no answer",
    "late": "get no answer in 2.2 s, or a late one",
    "at-times": "are answered only sometimes",
    "refused": "are refused, although preflight's probe listens",
    "unreachable": "are rejected as unreachable",
    "forbidden": "are forbidden by the calling host's own system",
    "no-route": "find no route",
    "no-family": "find no route",
    "no-scope": "find no route",
    "no-arp": "get no answer, and neither do ARP requests",
    "wrong-card": "get no answer, and go to a wrong hardware address",
    "no-address": "get no local port or address",
    "silent": "open, but nothing answers",
    "mute": "open, but nothing sent after that arrives",
    "stranger": "reach something that is not preflight's probe",
    "other-run": "reach another preflight's probe",
    "stall-send": "open and pass small messages, but {size} get stuck on the way there, after {moved}",
    "stall-receive": "open and pass small messages, but {size} get stuck on the way back, after {moved}",
    "reset": "are cut off",
    "cut": "carry {moved} of {size}, then stop",
    "slow": "carry {moved} of {size} in the time that preflight waits",
}
_MOST_PORTS, _MOST_KINDS = 3, 2


def seen_in_words(answers: Answers, cells: Collection[Pair], outcomes: Collection[str] = ()) -> str:
    """What the failed calls of these pairs have in common, and on which ports calls pass there; empty: none failed.

    `outcomes`: only calls that ended so, if there are any.
    """
    links = [link for link in answers.links if link.ends in cells and link.outward]
    links = [link for link in links if "other" not in link.kinds] or links
    bad = [link for link in links if not link.ok]
    bad = [link for link in bad if link.outcome in outcomes] or bad
    if not bad:
        return ""
    common = [outcome for outcome, _ in Counter(link.outcome for link in bad).most_common(_MOST_KINDS)]
    parts = [_calls_of(answers, [link for link in bad if link.outcome == outcome], links) for outcome in common]
    passes = [link for link in links if link.ok and link.outcome == "ok"]
    good = sorted({_port(answers, link) for link in passes} - {_port(answers, link) for link in bad})
    passing = f"; {_ports(good)} there answer{'s' if len(good) == 1 and '-' not in good[0] else ''}" if good else ""
    return "; ".join(parts) + passing


def _calls_of(answers: Answers, bad: Sequence[Link], links: Iterable[Link]) -> str:
    cells = {link.ends for link in bad}
    ports = {_port(answers, link) for link in bad}
    tried = [link for link in links if link.ends in cells and _port(answers, link) in ports]
    sources, targets = (list(dict.fromkeys(getattr(link, end) for link in bad)) for end in ("source", "target"))
    largest = max(bad, key=lambda link: link.size)
    how = _HOW.get(bad[0].outcome, bad[0].outcome).format(size=binary(largest.size), moved=binary(largest.moved))
    both = set(sources) == set(targets)
    between = f"between {listed(sources)}" if both else f"from {listed(sources)} to {listed(targets)}"
    return f"connections {between} on {_ports(sorted(ports))} {how} ({len(bad)} of {len(tried)} tried)"


def _port(answers: Answers, link: Link) -> str:
    """The port; of the ports on which a host listens for data, their range."""
    low, high = answers.facts.get(link.target, {}).get("port_range", (0, 0))
    ranged = {"data", "other", "store", "network", "rate", "long"} & set(link.kinds) and low <= link.port <= high
    return f"{low}-{high}" if ranged else str(link.port)


def _ports(ports: Sequence[str]) -> str:
    several = len(ports) > 1 or "-" in "".join(ports)
    return f"port{'s' if several else ''} {listed(ports, _MOST_PORTS)}"


def is_left_to_rehearsal(finding: Finding, answers: Answers) -> bool:
    """Whether a run may do with what speaks for it: calls that were answered at times, or few local ports.

    A limit of new connections answers some of many calls at once, and the few of a run pass it.
    """
    if finding.level != UNKNOWN or ROWS[finding.cause].tried:
        return finding.level == UNKNOWN
    seen = claimed(finding, failed(answers))
    if not seen:
        return finding.cause == "link-loss" and any((each[0], each[1]) in finding.cells for each in answers.often)
    return all(link.outcome == "at-times" for link in seen)


def doubts(verdict: Verdict, answers: Answers) -> list[Finding]:
    """The problems of the verdict, if a rehearsal may decide them all; else none."""
    return verdict.problems if all(is_left_to_rehearsal(each, answers) for each in verdict.problems) else []


def after_rehearsal(tried: Verdict, doubts: Sequence[Finding]) -> Verdict:
    """The verdict of a rehearsal on these doubts.

    If it went through, they are warnings. If it failed between hosts and does not say why, they are the likeliest
    cause, and stand first.
    """
    vague = [finding for finding in tried.problems if finding.cause == "proof-failed" and len(finding.hosts) > 1]
    if all(finding in doubts for finding in tried.problems):
        return _passed(tried, doubts) if tried.rehearsed else tried
    if any(finding not in doubts and finding not in vague for finding in tried.problems):
        return tried
    rest = [finding for finding in tried.findings if finding not in doubts]
    return replace(tried, findings=(*doubts, *rest))


def _passed(verdict: Verdict, doubts: Sequence[Finding]) -> Verdict:
    words = "; yet the rehearsal passed"
    shown = [
        replace(finding, level=WARNING, text=finding.text + words) if finding in doubts else finding
        for finding in verdict.findings
    ]
    groups = {**verdict.groups, **{finding.group: WARNING for finding in doubts}}
    return replace(verdict, findings=tuple(shown), groups=groups)
