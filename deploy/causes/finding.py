"""A finding: one thing that is wrong, or may be, or could not be told, with the words of its cause's row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from .table import ROWS, row_of

FAULT, WARNING, UNKNOWN = "fault", "warning", "could not tell"
# Hundreds of hosts may have a line each.
MOST_EVIDENCE = 10
LOOKS = "; this looks like: "


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or may be, or could not be told.

    cause: a slug of the table. hosts: what to repair. link: (from, to), where it is about one. symptom: how training
    would show it. fix: a command to copy, or what to do. follows: what else was seen and is explained by this. cells:
    the pairs (from, to) whose failed calls it explains. odd: for a verdict that knows no cause, what is odd, by slug.
    explains: how much of what failed it explains, in words. or_else: what else has the same outcome, where the cause is
    inferred and nothing singles it out.
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
    """What few findings say beside the rest."""

    group: str
    link: tuple[str, str] | None
    cells: tuple[tuple[str, str], ...]


def foremost(lines: Sequence[str], hosts: Sequence[str], most: int) -> list[str]:
    """The lines; where they are more than are told, those that begin with one of these hosts come first."""
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
    """The finding of a cause at a host, or at several: symptom, group and the fix's command are those of its row.

    seen: what was seen there; of one host its name is put before it. Whatever is given holds instead of the row's.
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
    """A sure finding as what it most likely is. `observed`: what was seen, in words that are true of every cause.

    A fact that is read whole (a process has the port, a clock is off) has one meaning. An outcome has several: packets
    that vanish, `permission denied`. So a finding that is inferred states first what was seen, in words that stay true,
    then what it looks like; and it is sure only if a second piece of evidence singles it out.
    """
    text = f"{observed}{LOOKS}{finding.text}" if observed else finding.text
    level = UNKNOWN if finding.level == FAULT else finding.level
    return replace(finding, text=text, level=level, or_else=ROWS[finding.cause].others)
