"""Two tables within pages: the variables of a node, and the events of a run."""

from __future__ import annotations

from tests.reference.events import EVENTS
from tests.reference.variables import VARIABLES

END = "<!-- end of the table -->"


def fill_in(page: str, source: str, table: str) -> str:
    """Return the page with this table between the marks that name its source."""
    before, begin, rest = page.partition(f"<!-- from the table of {source}: python -m tests.reference -->")
    _, _, after = rest.partition(END)
    return f"{before}{begin}\n{table}\n{END}{after}"


def variables_table() -> str:
    """A table with a row for each variable."""
    rows = [f"| {_spans(names.split(', '))} | {meaning} |" for names, meaning in VARIABLES.items()]
    return "\n".join(["| name | meaning |", "|---|---|", *rows])


def events_table() -> str:
    """A table with a row for each event."""
    rows = [f"| `{kind}`{f' ({who})' * bool(who)} | {fields} |" for kind, (who, fields) in EVENTS.items()]
    return "\n".join(["| kind | more fields |", "|---|---|", *rows])


def _spans(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
