"""A preflight's verdict as text: the groups in one line, the one cause with evidence and fix, then the rest. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ..causes.finding import FAULT, UNKNOWN, WARNING, Finding
from ..causes.table import READ
from ..core.text import duration, several
from ..preflight.answers import Answers
from ..preflight.checks import bandwidth
from ..preflight.verdict import Verdict

MARKS = {"ok": "✓", FAULT: "✗", WARNING: "!", UNKNOWN: "?"}
SHADES = ((0.7, "░"), (0.4, "▒"), (0.15, "▓"), (-1.0, "█"))
INDENT = " " * 8


def lines_of(verdict: Verdict, backend: str) -> Iterator[str]:
    """The lines of a verdict; `backend`: the library whose choices it predicts."""
    hosts = several(len(verdict.hosts_examined), "host")
    yield f"muster preflight   {hosts}   {duration(verdict.seconds)}   {backend}   {verdict.where}"
    shown = (f"{group} {MARKS.get(level, level)}" for group, level in verdict.groups.items() if level)
    yield "  " + "  ".join(shown)
    for number, finding in enumerate([*verdict.faults, *verdict.unknown]):
        yield from _whole(finding, "cause" if number == 0 else "also")
    for finding in verdict.warnings:
        yield f"warning {finding.text}" + (f"; {finding.fix}" if finding.fix else "")
    if verdict.network:
        yield f"network {verdict.network}"
    for text in verdict.unexplained:
        yield f"odd     {text}: nothing above explains this"
    if verdict.ok:
        yield _ready(verdict)


def readiness(verdict: Verdict) -> tuple[str, str]:
    """What a verdict without a fault says, as a title and a sentence: what was not rehearsed is not promised."""
    warned = ", with warnings" if verdict.warnings else ""
    if verdict.not_rehearsed:
        return f"ready, not rehearsed{warned}", verdict.not_rehearsed
    shown = f": rehearsed, {verdict.rehearsed}" if verdict.rehearsed else ""
    return "ready", f"the nodes will find each other{warned}{shown}"


def _ready(verdict: Verdict) -> str:
    title, text = readiness(verdict)
    return f"{title}: {text}" if verdict.not_rehearsed else f"{title:<8}{text}"


def _whole(finding: Finding, word: str) -> Iterator[str]:
    unsure = "could not tell: " if finding.level == UNKNOWN and not finding.or_else else ""
    yield f"{word:<8}{unsure}{finding.text}"
    for number, seen in enumerate(finding.evidence):
        yield f"{INDENT}{'' if number else 'evidence:':<9} {seen}"
    if finding.or_else:
        yield f"{INDENT}not sure, it may also be: {'; '.join(finding.or_else)}"
    if finding.symptom:
        yield f"{INDENT}would show as: {finding.symptom}"
    for text in finding.follows:
        yield f"{INDENT}so also: {text}"
    if finding.explains:
        yield f"{INDENT}{finding.explains}"
    if finding.fix:
        yield f"fix     {finding.fix}"
    yield f"{INDENT}more: {READ} {finding.cause}"


def heat(answers: Answers) -> Iterator[str]:
    """Every pair's rate as a picture: darker is slower, against the median."""
    known = bandwidth.rates(answers)
    if not known:
        return
    middle = statistics.median(known.values())
    width = max([len(host) for host in answers.hosts_with_facts] + [7])
    yield f"{'Mbit/s':<{width + 6}}" + " ".join(f"{host:>{width + 2}}" for host in answers.hosts_with_facts) + "   (to)"
    for source in answers.hosts_with_facts:
        cells = []
        for target in answers.hosts_with_facts:
            rate = known.get((source, target))
            shade = " " if rate is None else next(mark for part, mark in SHADES if rate >= part * middle)
            cells.append(f"{'-' if rate is None else f'{rate:.0f}':>{width}} {shade}")
        yield f"from {source:<{width + 1}}" + " ".join(cells)


def matrix(answers: Answers) -> Iterator[str]:
    """What `nc -vz` would say from each host to each: the rendezvous port, and a port of the data range."""
    width = max([len(host) for host in answers.hosts_with_facts] or [4])
    for title, kinds in ((f"port {answers.request.port}", ("rendezvous", "hint")), ("data ports", ("data",))):
        yield f"{title:<{width + 8}}" + "  ".join(f"{host:>{width}}" for host in answers.hosts_with_facts) + "   (to)"
        for source in answers.hosts_with_facts:
            cells = []
            for target in answers.hosts_with_facts:
                tried = [link for kind in kinds for link in answers.between(source, target, kind)]
                bad = [link.outcome for link in tried if not link.ok]
                cells.append((bad[0] if bad else "open" if tried else "-") if source != target else "-")
            yield f"from {source:<{width + 3}}" + "  ".join(f"{cell:>{width}}" for cell in cells)
