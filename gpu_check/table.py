"""The findings as a table on standard output: rich's on a terminal where that is installed, plain text elsewhere."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from .finding import MET, NOT_MET, Done, rows, table

_COLOURS = {MET: "green", NOT_MET: "bold red"}


def show(checks: Sequence[Done]) -> None:
    """Print the table."""
    if not sys.stdout.isatty() or importlib.util.find_spec("rich") is None:
        print(table(checks))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False)
    for head in ("check", "what", "measured", "expected", ""):
        made.add_column(head, no_wrap=head == "")
    for row in rows(checks):
        made.add_row(*map(Text, row[:4]), Text(row[4], style=_COLOURS.get(row[4], "yellow")))
    Console().print(made)
