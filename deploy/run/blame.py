"""Name the rank that caused the end of a run, from how each rank ended. Pure.

Only the first cause is named; its victims are listed by number. If that cause is unknown, the message says so and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..core.errors import DONE
from .inquest.collectives import MISMATCH_WORDS

MOST_NAMES = 4


@dataclass(frozen=True)
class End:
    """How a rank ended, as its node's agent reports it: `how` in words. A `victim` lost a peer; `error` says how."""

    rank: int
    node: str
    code: int
    t: float
    how: str = ""
    victim: bool = False
    error: str = ""


@dataclass(frozen=True)
class Blame:
    """The message about the end; `node` and `rank` name the culprit; empty and None if it is unknown."""

    message: str
    node: str = ""
    rank: int | None = None


def cause_of(ends: Sequence[End]) -> End | None:
    """The first rank that failed without being a victim."""
    own = [end for end in ends if end.code and not end.victim]
    return min(own, key=lambda end: (end.t, end.rank), default=None)


def blame(began: Mapping[int, str], ends: Sequence[End]) -> Blame | None:
    """Who is to blame; None if no rank failed. `began`: the node of each rank; `ends`: the last end of each rank."""
    if cause := cause_of(ends):
        error = f": {cause.error}" if cause.error else ""
        return Blame(f"{_who(cause.rank, cause.node)} {cause.how}{error}", cause.node, cause.rank)
    victims = sorted((end for end in ends if end.victim), key=lambda end: (end.t, end.rank))
    if not victims:
        return None
    first, lost = victims[0], _ranks(end.rank for end in victims)
    left = [end for end in ends if end.code == DONE and end.t <= first.t]
    still = {rank: node for rank, node in began.items() if rank not in {end.rank for end in ends}}
    if left:
        early = min(left, key=lambda end: (end.t, end.rank))
        text = f"left early, with code 0, while the others waited; {lost} lost it ({first.error})"
        return Blame(f"{_who(early.rank, early.node)} {text}", early.node, early.rank)
    # The rank that notices another size may be the odd one itself, and one that still ran is not to blame for that.
    if odd := next((end for end in victims if re.search(MISMATCH_WORDS, end.error, re.IGNORECASE)), None):
        who = f"{_who(odd.rank, odd.node)} {odd.how} ({odd.error.strip()})"
        return Blame(f"the ranks do not agree on a collective: {who}; could not tell which of them is wrong")
    if len(still) == 1:
        ((rank, node),) = still.items()
        if "reset by peer" in first.error:
            text = f"lost its connection to {_who(rank, node)}: that end, or something between them, reset it"
            return Blame(f"{_who(first.rank, first.node)} {text} ({first.error})", first.node, first.rank)
        text = f"did not answer: it hangs, or cannot be reached; {lost} gave up on it ({first.error})"
        return Blame(f"{_who(rank, node)} {text}", node, rank)
    if still:
        return Blame(
            f"could not tell which rank stopped answering: {lost} gave up ({first.error}), {_ranks(still)} still ran"
        )
    who = _who(first.rank, first.node)
    return Blame(f"could not tell which rank failed: each lost another one; the first was {who} ({first.error})")


def _who(rank: int, node: str) -> str:
    return f"{node} (rank {rank})"


def _ranks(ranks: Iterable[int]) -> str:
    """`rank 1`; `ranks 0, 2`; `ranks 0, 1, 2, 3 and 4 more`."""
    numbers = sorted(ranks)
    more = f" and {len(numbers) - MOST_NAMES} more" if len(numbers) > MOST_NAMES else ""
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:MOST_NAMES]))}{more}"
