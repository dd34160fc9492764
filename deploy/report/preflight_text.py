"""A preflight's verdict as text: groups, the one cause with evidence and fix, the rest, the matrix of `--nc`. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..causes.finding import FAULT, UNKNOWN, WARNING, Finding
from ..causes.table import READ
from ..core.text import duration, several
from ..preflight.answers import Answers
from ..preflight.checks import bandwidth
from ..preflight.verdict import Verdict
from .text import aligned

MARKS = {"ok": "✓", FAULT: "✗", WARNING: "!", UNKNOWN: "?"}
SHADES = ((0.7, "░"), (0.4, "▒"), (0.15, "▓"), (-1.0, "█"))
INDENT = " " * 8
# How many findings are printed in full.
MOST_WHOLE = 8


def lines_of(verdict: Verdict, backend: str) -> Iterator[str]:
    """The lines of a verdict. `backend`: the communication library whose choices the verdict predicts."""
    hosts = several(len(verdict.hosts_examined), "host")
    yield f"muster preflight   {hosts}   {duration(verdict.seconds)}   {backend}   {verdict.where}"
    shown = (f"{group} {MARKS.get(level, level)}" for group, level in verdict.groups.items() if level)
    yield "  " + "  ".join(shown)
    for number, finding in enumerate(verdict.problems[:MOST_WHOLE]):
        yield from _whole(finding, "cause" if number == 0 else "also")
    yield from _counted("also", verdict.problems)
    for finding in verdict.warnings[:MOST_WHOLE]:
        yield f"warning {finding.text}" + (f"; {finding.fix}" if finding.fix else "")
    yield from _counted("warning", verdict.warnings)
    if verdict.network:
        yield f"network {verdict.network}"
    for text in verdict.unexplained:
        yield f"odd     {text}: nothing above explains this"
    if verdict.ok:
        yield _ready(verdict)


def readiness(verdict: Verdict) -> tuple[str, str]:
    """A title and a sentence for a verdict without a fault: they promise only what was rehearsed."""
    warned = ", with warnings" if verdict.warnings else ""
    if verdict.not_rehearsed:
        return f"ready, not rehearsed{warned}", verdict.not_rehearsed
    shown = f": rehearsed, {verdict.rehearsed}" if verdict.rehearsed else ""
    return "ready", f"the nodes will find each other{warned}{shown}"


def _ready(verdict: Verdict) -> str:
    title, text = readiness(verdict)
    return f"{title}: {text}" if verdict.not_rehearsed else f"{title:<8}{text}"


def _counted(word: str, findings: Sequence[Finding]) -> Iterator[str]:
    """A line that counts, by cause, the findings that are not printed in full."""
    if left := Counter(finding.cause for finding in findings[MOST_WHOLE:]):
        causes = ", ".join(f"{cause} ({count})" for cause, count in left.items())
        yield f"{word:<8}{left.total()} more, which --json shows: {causes}"


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
        yield f"{INDENT}this also explains: {text}"
    if finding.explains:
        yield f"{INDENT}{finding.explains}"
    if finding.fix:
        yield f"fix     {finding.fix}"
    yield f"{INDENT}more: {READ} {finding.cause}"


def heat(answers: Answers) -> list[str]:
    """Every pair's rate as a picture: the darker, the slower compared with the median."""
    known = bandwidth.rates(answers)
    middle = statistics.median(known.values() or [0])

    def cell(row: str, column: str) -> str:
        if (rate := known.get((row, column))) is None:
            return "-"
        return f"{rate:.0f} {next(mark for part, mark in SHADES if rate >= part * middle)}"

    return _grid(answers, "Mbit/s", cell) if known else []


def matrix(answers: Answers) -> list[str]:
    """What `nc -vz` would print from each host to each other: for the rendezvous port, and for the data ports."""

    def cell(kinds: Sequence[str], row: str, column: str) -> str:
        tried = [link for kind in kinds for link in answers.between(row, column, kind)]
        return next((link.outcome for link in tried if not link.ok), "open" if tried else "-")

    ports = ((f"port {answers.request.port}", ("rendezvous", "hint")), ("data ports", ("data",)))
    return [line for title, kinds in ports for line in _grid(answers, title, partial(cell, kinds))]


def _grid(answers: Answers, title: str, cell: Callable[..., str]) -> list[str]:
    """A row for each calling host, a column for each called host."""
    hosts = answers.hosts_with_facts
    rows = ([f"from {row}", *(cell(row, column) for column in hosts), ""] for row in hosts)
    return aligned([[title, *hosts, "(to)"], *rows])
