"""Makes docs/reference/causes.md from the table of causes (deploy/causes/)."""

from __future__ import annotations

from deploy.causes.table import SECTIONS

HEAD = """\
# Causes, and how to fix each

Made from `deploy/causes/rows/` by `python -m tests.reference`; do not edit by hand.

`muster preflight` and `muster explain` name these causes, and `muster explain CAUSE` prints an entry without a network.
Each entry says what you see, how to check it by hand, how to fix it, and a source. Replace `HOST`, `DEV` and `ADDRESS`
with your own.

A line `not sure, it may also be: ...` below a cause means that preflight saw what is before `this looks like`; the
entry here is its likeliest cause.
"""


def causes_page() -> str:
    """The page, with a section for each theme and an entry for each cause."""
    parts = [HEAD]
    for section in SECTIONS:
        parts += [f"## {section.title}\n"] * bool(section.title) + [f"{section.intro}\n"] * bool(section.intro)
        for row in section.rows:
            bullets = {"by hand": row.by_hand, "fix": row.fix, "source": row.source}
            entry = (f"- {name}: {text}" for name, text in bullets.items() if text)
            parts.append("\n".join([f"### {row.slug}", row.meaning, "", *entry, ""]))
    return "\n".join(parts)
