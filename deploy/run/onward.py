"""The next start of a run, on the hosts that are left: which of its options still hold. Pure."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from ..job.again import read_again, words_again


def options(known: dict[str, Any], left: int) -> str:
    """The options of a run, as its record has them, for a start on `left` of its hosts."""
    again: str = known.get("again") or ""
    if left >= len(known.get("hosts", ())):
        return again
    given = read_again(again)
    # Of fewer than three none can be lost, and of all that are left one must be allowed to.
    least = min(int(given.min_nodes), left - 1) if given.min_nodes.isdecimal() and left >= 3 else 0
    # This start needs no host to wait, or to vote alone.
    return shlex.join(words_again(replace(given, min_nodes=str(least or ""), spare="", arbiter="")))
