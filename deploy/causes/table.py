"""THE table of causes: the rows of rows/, and what is made of them. Pure.

To add a cause, add a row to a file in rows/, and let a check or a sign name its slug. `python -m tests.reference`
makes docs/reference/causes.md from the rows, and `muster explain CAUSE` prints one.
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
# Before a slug: the command that prints its entry, without a page or a network.
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
# By cause, what is a consequence where it is found at one of the same hosts.
EXPLAINS: Mapping[str, frozenset[str]] = {slug: frozenset(row.explains.split()) for slug, row in ROWS.items()}


def row_of(slug: str) -> Row:
    """The row of a cause. Raises ValueError for a slug that has none, as a recording of another version may have."""
    if slug not in ROWS:
        raise ValueError(f"{slug}: no such cause; add a row to deploy/causes/rows/")
    return ROWS[slug]


def end_of(slug: str) -> Cause:
    """The cause of the closed list to which a cause belongs."""
    return ROWS[slug].ends if slug in ROWS else Cause.SET_UP if slug else Cause.NOT_KNOWN


def entry_of(row: Row) -> Iterator[str]:
    """What the page of causes says of one, as lines of Markdown."""
    yield from (row.meaning, "")
    bullets = {"by hand": row.by_hand, "fix": row.fix, "source": row.source}
    yield from (f"- {name}: {text}" for name, text in bullets.items() if text)


def lines_of(row: Row) -> Iterator[str]:
    """A row in words, for somebody who has met its slug and no page; a command of ours as the user calls it."""
    parts = {
        "cause": f"{row.slug}: {row.meaning}",
        "by hand": row.by_hand,
        "fix": row.fix,
        "may be": "; ".join(row.others),
        "explains": ", ".join(row.explains.split()),
        "source": row.source,
    }
    yield from (f"{name:<10}{text}" for name, text in parts.items() if text)
