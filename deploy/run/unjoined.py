"""Ranks of a script that train, and that no process group joins: told while the run can still be mended. Pure.

The nodes' agents know of their own ranks (trainer/node/training_alone.py); the inquest (inquest.py) asks about all.
"""

from __future__ import annotations

from ..core.text import ranks_in_words
from .causes import Cause, Finding
from .evidence import Evidence

# One rank may train something for itself while the others wait.
_LEAST = 2
# The agents tell of their ranks one after the other.
_SETTLE_S = 5.0


def alone(evidence: Evidence, now: float) -> list[Finding]:
    """A finding that ranks train alone, once several do. The run continues: it may be intended, or they join later."""
    loners = {rank: of for rank, of in sorted(evidence.alone.items()) if rank in evidence.living}
    all_told = len(loners) == len(evidence.living)
    if len(loners) < _LEAST or (not all_told and now - max(of.t for of in loners.values()) < _SETTLE_S):
        return []
    of = next(iter(loners.values()))
    hint = f". {of.hint}" if of.hint else ""
    who, waits = ranks_in_words(loners), all(each.waits for each in loners.values())
    if waits and not all_told:
        return []  # a rank that has joined nobody yet may be on its way to them
    does = "wait for others where none of them comes" if waits else "train alone so far, and such a run ends as failed"
    text = f"{who} {does}: {of.why}{hint}"
    return [Finding(Cause.ALONE, text, t=min(of.t for of in loners.values()), lasting=True)]
