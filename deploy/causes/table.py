"""The table of causes: all rows of rows/, look-ups in it, and an entry as text. Pure.

To add a cause, add a row to a file in rows/, and use its slug in a check or a sign. `python -m tests.reference` makes
docs/reference/causes.md from the rows, and `muster explain CAUSE` prints one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from .end_causes import Cause
from .row import Row, Section
from .rows import (
    clocks,
    gpus,
    hosts,
    interfaces,
    links,
    names,
    ports,
    rdma,
    rehearsal,
    resources,
    scripts,
    software,
    surroundings,
)

DOCS = "docs/reference/causes.md"
# This command, followed by a slug, prints the entry of the cause, without a browser or a network.
READ = "muster explain"
SECTIONS: tuple[Section, ...] = tuple(
    section
    for theme in (
        hosts,
        software,
        gpus,
        rdma,
        names,
        interfaces,
        links,
        ports,
        clocks,
        resources,
        rehearsal,
        scripts,
        surroundings,
    )
    for section in theme.SECTIONS
)
ROWS: Mapping[str, Row] = {
    row.slug: replace(row, group=row.group or section.group) for section in SECTIONS for row in section.rows
}
# Cause -> the causes that are its consequences if they are found at one of the same hosts.
EXPLAINS: Mapping[str, frozenset[str]] = {slug: frozenset(row.explains.split()) for slug, row in ROWS.items()}


def row_of(slug: str) -> Row:
    """Return the row of a cause. Raises ValueError for an unknown slug; another version's recording may have one."""
    if slug not in ROWS:
        raise ValueError(f"{slug}: no such cause; add a row to deploy/causes/rows/")
    return ROWS[slug]


def end_of(slug: str) -> Cause:
    """Return the cause in the closed list (end_causes.py) to which a cause belongs."""
    return ROWS[slug].ends if slug in ROWS else Cause.SET_UP if slug else Cause.NOT_KNOWN


def lines_of(row: Row) -> Iterator[str]:
    """Yield a row as lines of text, for a user of `muster explain` who has only its slug."""
    parts = {
        "cause": f"{row.slug}: {row.meaning}",
        "by hand": row.by_hand,
        "fix": row.fix,
        "may be": "; ".join(row.others),
        "explains": ", ".join(row.explains.split()),
        "source": row.source,
    }
    yield from (f"{name:<10}{text}" for name, text in parts.items() if text)
