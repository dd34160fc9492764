"""Whose fault the end of a run's ranks is, by how each of them ended. Pure.

The first cause counts, and its victims are only counted up. Where nobody can tell, it says so and says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..core.errors import DONE

NAMES_TOLD = 4


@dataclass(frozen=True)
class End:
    """How a rank ended, as its node's agent saw it: `how` in words; a `victim` lost a peer, its `error` says how."""

    rank: int
    node: str
    code: int
    t: float
    how: str = ""
    victim: bool = False
    error: str = ""


@dataclass(frozen=True)
class Blame:
    """What to say of the end; `node` and `rank` are the culprit's, empty and None where nobody can tell."""

    message: str
    node: str = ""
    rank: int | None = None


def cause_of(ends: Sequence[End]) -> End | None:
    """The rank that failed first by itself."""
    own = [end for end in ends if end.code and not end.victim]
    return min(own, key=lambda end: (end.t, end.rank), default=None)


def blame(began: Mapping[int, str], ends: Sequence[End]) -> Blame | None:
    """Who is to blame; None where no rank failed. `began`: the node of each rank; `ends`: the last of each."""
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
    if len(still) == 1:
        ((rank, node),) = still.items()
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
    told = sorted(ranks)
    more = f" and {len(told) - NAMES_TOLD} more" if len(told) > NAMES_TOLD else ""
    return f"rank{'s' if len(told) > 1 else ''} {', '.join(map(str, told[:NAMES_TOLD]))}{more}"
