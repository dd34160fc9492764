"""docs/troubleshooting.md, from the table of causes (deploy/causes/).

python -m tests.causes_page      writes it; tests/unit/causes/test_table.py finds it out of date
"""

from __future__ import annotations

from pathlib import Path

from deploy.causes.table import DOCS, SECTIONS, entry_of

PAGE = Path(__file__).resolve().parents[1] / DOCS
HEAD = """\
# Troubleshooting: one entry for each cause

Made from `deploy/causes/rows/` by `python -m tests.causes_page`; do not edit by hand.

`muster preflight` and `muster explain` name these causes and link to this page; `muster explain CAUSE` prints one.
Each entry says what you see, how to check it by hand, how to fix it, and a source. Replace `HOST`, `DEV` and
`ADDRESS` with your own.

A line `not sure, it may also be: ...` below a cause means that preflight saw what is before `this looks like`; the
entry here is its likeliest cause.
"""


def causes_page() -> str:
    """The page: a section a theme, an entry a cause."""
    parts = [HEAD]
    for section in SECTIONS:
        parts += [f"## {section.title}\n"] * bool(section.title) + [f"{section.intro}\n"] * bool(section.intro)
        for row in section.rows:
            parts.append("\n".join([f"### {row.slug}", *entry_of(row), ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(causes_page())
