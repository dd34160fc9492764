"""How many of the failed calls each finding explains, and whether its cause is therefore certain. Pure.

An observation is a failed call, with the way in which it failed. A cause explains it if the cause is about these two
hosts and this kind of call, and makes calls fail in this way. A cause is certain if it explains at least half of the
failed calls between its hosts, and no other finding explains all of these too. Otherwise the verdict is `not-known`,
and lists every cause that remains possible, the likeliest first.

How calls fail is one piece of evidence, and each way of failing has several causes. So a cause that is inferred from it
stays certain only if a second piece of evidence supports it (singled_out). Otherwise the finding describes what was
seen, and which cause that suggests.
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
# The first word of a cause -> the kinds of calls that it is about.
ABOUT = {"rendezvous": {"rendezvous", "store", "hint"}, "data": {"data"}}


def failed_calls(answers: Answers) -> Observations:
    """Return the failed calls between two hosts, except those that only look for an alternative interface."""
    return frozenset(link for link in answers.links if not link.ok and link.is_outward and "other" not in link.kinds)


def explained_calls(finding: Finding, seen: Observations) -> Observations:
    """Return the observations that a finding explains."""
    outcomes, kinds = ROWS[finding.cause].fails, ABOUT.get(finding.cause.partition("-")[0])
    return frozenset(
        link
        for link in failed_between(finding, seen)
        if (outcomes is None or link.outcome in outcomes) and (kinds is None or kinds & set(link.kinds))
    )


def failed_between(finding: Finding, seen: Observations) -> Observations:
    """Return the observations between the pairs of hosts that a finding is about."""
    cells = set(finding.cells)  # a set, because many hosts have thousands of pairs
    return frozenset(link for link in seen if link.ends in cells)


def ranked(findings: Sequence[Finding], answers: Answers) -> list[Finding]:
    """Order the faults about links by how many failed calls they explain; use `not-known` if the first is not certain.

    Each gets that number in words (`explains`). A fault of a host stays before them: a wrong name or a busy port is
    observed directly, a link only from outside.
    """
    seen, ordered = failed_calls(answers), list(findings)
    every = _pairs(seen)
    for number, finding in enumerate(ordered):
        if finding.level == FAULT and (mine := _pairs(explained_calls(finding, seen))):
            words = f"explains {len(mine)} of {len(every)} pairs of hosts with failed connections"
            ordered[number] = replace(finding, explains=words)
    places = [number for number, finding in enumerate(ordered) if finding.level == FAULT and finding.cells]
    # What hosts report about themselves (two have the same address) comes before what failed calls only suggest.
    by_weight = sorted(
        (ordered[place] for place in places),
        key=lambda finding: (ROWS[finding.cause].fails is not None, -len(_pairs(explained_calls(finding, seen)))),
    )
    for place, finding in zip(places, by_weight, strict=True):
        ordered[place] = finding
    ordered = _settled(ordered, seen)
    unexplained = every - {cell for finding in ordered for cell in finding.cells}
    if unexplained and not any(finding.level in (FAULT, UNKNOWN) for finding in ordered):
        ordered += _not_known(answers, unexplained)
    return [_described(finding, answers, seen) for finding in ordered]


def _described(finding: Finding, answers: Answers, seen: Observations) -> Finding:
    """Return the finding; if it is only inferred from calls, its text becomes what was seen, then the likely cause."""
    inferred = finding.level == FAULT and ROWS[finding.cause].inferred
    undecided = finding.cause == "not-known" and bool(finding.odd)
    if not (inferred or undecided) or (inferred and singled_out(finding, answers)):
        return finding
    mine = explained_calls(finding, seen) or failed_between(finding, seen)
    seen_here = seen_in_words(answers, set(finding.cells), {link.outcome for link in mine})
    return unsure(finding, seen_here)


def singled_out(finding: Finding, answers: Answers) -> bool:
    """Whether a second piece of evidence, in addition to the failed calls, supports the cause inferred from them."""
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
    rules = [rule for host in finding.hosts for rule in answers.rules_that_dropped(host)]
    return any(_may_drop(rule, link.port) for rule in rules for link in about)


def _have_no_way(finding: Finding, answers: Answers, about: Sequence[Link], tried: Sequence[Link]) -> bool:
    """Whether a caller's own kernel reports that it has no route."""
    return bool(reachability.no_route_error(answers, about))


def _sizes_differ(finding: Finding, answers: Answers, about: Sequence[Link], tried: Sequence[Link]) -> bool | None:
    """True if these hosts' interfaces have different MTUs; else None: firewall rules may still prove the cause."""
    hosts = {host for cell in finding.cells for host in cell if host in answers.facts}
    sizes = {answers.card(host).get("mtu", 0) for host in hosts}
    return len(sizes - {0}) > 1 or None


# Value of `settled_by` in a cause's row -> a function that tells whether the evidence proves the cause. It gets the
# failed calls of the finding's pairs, and all calls of these pairs; None: look at further evidence.
SETTLES: dict[str, Callable[[Finding, Answers, Sequence[Link], Sequence[Link]], bool | None]] = {
    "delay": lambda finding, answers, about, tried: any(link.ms for link in tried),
    # A rate has been measured if a whole payload has passed.
    "rate": lambda finding, answers, about, tried: any(link.ok and link.both_s for link in tried),
    "way": _have_no_way,
    # If ARP gets no answer, every port must fail.
    "neighbours": lambda finding, answers, about, tried: (
        {link.outcome for link in tried} <= {"no-arp", "wrong-card", *AIMLESS, *LOST}
    ),
    "answerer": lambda finding, answers, about, tried: any(
        link.outcome in ("stranger", "other-run") or link.host for link in about
    ),
    "sizes": _sizes_differ,
}


def _may_drop(rule: str, port: int) -> bool:
    """Whether a rule whose count grew may have dropped calls to this port: it may be about other packets."""
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
    """Return the findings; if the first fault is not certain, `not-known` replaces it and its rivals."""
    first = next((finding for finding in findings if finding.level == FAULT), None)
    if first is None or ROWS[first.cause].fails is None or not first.cells:
        return findings
    about, mine = failed_between(first, seen), explained_calls(first, seen)
    rivals = [
        finding
        for finding in findings
        if finding is not first
        and finding.level in (FAULT, WARNING)
        and finding.cause != first.cause
        and (explained_calls(finding, seen) >= mine if mine else _as_likely(finding, first))
    ]
    little = 2 * len(mine) < len(about)
    if not rivals and not little:
        return findings
    rest = [finding for finding in findings if finding is not first and finding not in rivals]
    return [*rest, _undecided(first, rivals, len(mine), len(about))]


def _as_likely(finding: Finding, first: Finding) -> bool:
    """Whether a fault is also about all pairs of `first`, if only calls that a run does not make have failed there."""
    return finding.level == FAULT and ROWS[finding.cause].fails is not None and set(finding.cells) >= set(first.cells)


def _undecided(first: Finding, rivals: Sequence[Finding], mine: int, about: int) -> Finding:
    every = sorted(
        [first, *rivals], key=lambda finding: not (ROWS[finding.cause].from_many_packets and finding.level == FAULT)
    )
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
    """Yield a finding `not-known` if calls that a run needs failed and no check explains them."""
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


# Outcome of calls -> how they end, in words.
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
    """Describe what the failed calls of these pairs have in common, and on which ports calls pass; empty: none failed.

    `outcomes`: look only at calls with these outcomes, if there are any.
    """
    links = [link for link in answers.links if link.ends in cells and link.is_outward]
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
    """Return the port of a call; for a data port, the host's range of local ports."""
    low, high = answers.facts.get(link.target, {}).get("port_range", (0, 0))
    ranged = {"data", "other", "store", "network", "rate", "long"} & set(link.kinds) and low <= link.port <= high
    return f"{low}-{high}" if ranged else str(link.port)


def _ports(ports: Sequence[str]) -> str:
    several = len(ports) > 1 or "-" in "".join(ports)
    return f"port{'s' if several else ''} {listed(ports, _MOST_PORTS)}"


def is_left_to_rehearsal(finding: Finding, answers: Answers) -> bool:
    """Whether a run may still work despite this doubt: calls were answered only sometimes, or local ports are few.

    If a host limits new connections, only some of many parallel calls are answered, but a run's few connections pass.
    """
    if finding.level != UNKNOWN or ROWS[finding.cause].rehearsal_decides:
        return finding.level == UNKNOWN
    seen = failed_between(finding, failed_calls(answers))
    if not seen:
        return finding.cause == "link-loss" and any((each[0], each[1]) in finding.cells for each in answers.often)
    return all(link.outcome == "at-times" for link in seen)


def doubts(verdict: Verdict, answers: Answers) -> list[Finding]:
    """Return the problems of the verdict if a rehearsal can decide all of them; else none."""
    return verdict.problems if all(is_left_to_rehearsal(each, answers) for each in verdict.problems) else []


def after_rehearsal(tried: Verdict, doubts: Sequence[Finding]) -> Verdict:
    """Return the verdict of a rehearsal on these doubts.

    If the rehearsal went through, they become warnings. If it failed between hosts for no clear reason, they are the
    likeliest cause, and come first.
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
