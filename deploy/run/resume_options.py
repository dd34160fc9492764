"""Which options of a run still apply to its next start on the hosts that are left. Pure."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from ..job.option_words import read_again, words_again


def options(known: dict[str, Any], left: int) -> str:
    """The options for a start on `left` hosts of a run, from the run's record."""
    again: str = known.get("again") or ""
    if left >= len(known.get("hosts", ())):
        return again
    given = read_again(again)
    # With fewer than three hosts none can be lost. With more, it must be allowed to lose one of those that are left.
    least = min(int(given.min_nodes), left - 1) if given.min_nodes.isdecimal() and left >= 3 else 0
    # This start needs no spare host, and no arbiter.
    return shlex.join(words_again(replace(given, min_nodes=str(least or ""), spare="", arbiter="")))
