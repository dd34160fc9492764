"""A finding: a thing that is wrong, may be wrong, or could not be determined, with texts from its cause's row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from .table import ROWS, row_of

FAULT, WARNING, UNKNOWN = "fault", "warning", "could not tell"
# A finding shows at most this many lines of evidence: hundreds of hosts may have a line each.
MOST_EVIDENCE = 10
LOOKS = "; this looks like: "


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, may be wrong, or could not be determined.

    cause: a slug of the table. hosts: the hosts to repair. link: (from, to), if it is about one link. symptom: how
    training would show it. fix: a command to copy, or what to do. follows: the texts of findings that it explains.
    cells: the pairs (from, to) whose failed calls it explains. odd: for the cause `not-known`, the slugs of the causes
    that remain possible. explains: how many of the failed calls it explains, in words. or_else: other causes with the
    same effect, if this cause is inferred and no second piece of evidence proves it.
    """

    cause: str
    group: str
    hosts: tuple[str, ...]
    text: str
    evidence: tuple[str, ...] = ()
    symptom: str = ""
    fix: str = ""
    level: str = FAULT
    link: tuple[str, str] | None = None
    follows: tuple[str, ...] = ()
    cells: tuple[tuple[str, str], ...] = ()
    odd: tuple[str, ...] = ()
    explains: str = ""
    or_else: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a cause that has no row."""
        row_of(self.cause)


class _About(TypedDict, total=False):
    """Fields of a finding that only few callers of `find` set."""

    group: str
    link: tuple[str, str] | None
    cells: tuple[tuple[str, str], ...]


def foremost(lines: Sequence[str], hosts: Sequence[str], most: int) -> list[str]:
    """Return the lines; if there are more than `most`, those that begin with one of these hosts come first."""
    starts = tuple(f"{host}{mark}" for host in hosts for mark in ": ")
    return sorted(lines, key=lambda line: len(lines) > most and not line.startswith(starts))


def find(
    cause: str,
    hosts: str | Sequence[str],
    seen: str,
    fix: str = "",
    level: str = FAULT,
    evidence: Sequence[str] = (),
    symptom: str | None = None,
    **about: Unpack[_About],
) -> Finding:
    """Return a finding of a cause at one host or several. Symptom, group and fix come from its row, unless given.

    seen: what was seen there; if `hosts` is a single name, that name is put before it.
    """
    row = row_of(cause)
    several = (hosts,) if isinstance(hosts, str) else tuple(hosts)
    finding = Finding(
        cause,
        row.group,
        several,
        f"{hosts}: {seen}" if isinstance(hosts, str) else seen,
        tuple(foremost(evidence, several, MOST_EVIDENCE))[:MOST_EVIDENCE],
        row.symptom if symptom is None else symptom,
        fix or row.hint(*several),
        level,
    )
    return replace(finding, **about)


def unsure(finding: Finding, observed: str = "") -> Finding:
    """Turn a certain finding into a likely one. `observed`: what was seen, in words that are true for any cause.

    A fact that can be observed directly (a process has the port, a clock is wrong) has one meaning. A symptom has
    several: lost packets, `permission denied`. So an inferred finding first states what was seen, in words that stay
    true, and then the likely cause. It is certain only if a second piece of evidence proves it.
    """
    text = f"{observed}{LOOKS}{finding.text}" if observed else finding.text
    level = UNKNOWN if finding.level == FAULT else finding.level
    return replace(finding, text=text, level=level, or_else=ROWS[finding.cause].others)
