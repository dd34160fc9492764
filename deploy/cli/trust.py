"""`trust`: the SSH keys of hosts that are not known yet."""

from __future__ import annotations

import sys

from ..core.errors import DONE, FAILED, UsageError
from ..core.program import FAB
from ..door import session
from ..job.load import load_cluster
from ..job.options import Options
from ..report.console import Console
from .command import command


@command(
    example=f"{FAB} trust --hosts gpu-a,gpu-b",
    codes={
        DONE: "each host's keys were known already, or you have answered the question with yes or no",
        FAILED: "a host does not answer, or shows another key than the known one",
    },
)
def trust(options: Options, console: Console) -> int:
    """Show the SSH keys of unknown hosts, and ask whether to trust them."""

    def ask(question: str) -> bool:
        if not sys.stdin.isatty():
            raise UsageError("no terminal to ask on whether to trust a host", f"run `{FAB} trust` on a terminal")
        return console.ask(question)

    for host, words in session.trust(load_cluster(options).hosts, ask, console.note).all().items():
        console.line(f"{host}  {words}", {"kind": "trust", "host": host, "message": words})
    return DONE
