"""Ranks that only lost a peer: which of them a launcher saw fail first, and which ranks say nothing. Pure.

A rank that hangs, or ends with code 0 too early, prints no error. The launcher then sees one fail first that lost it.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from ..core.text import ranks_in_words
from .reading import Reading, Root
from .signs_kinds import Weight

# A rank that lost a peer raises, or NCCL's watchdog aborts it.
_ENDS = (None, 1, -signal.SIGABRT)
_MOST = 1 << 16


def is_victim(root: Root, readings: Sequence[Reading]) -> bool:
    """Whether the rank that a launcher saw fail first has no words but those of a rank that lost a peer."""
    own = [hit for reading in readings for hit in reading.hits if hit.rank and same_rank(root.rank, hit.rank)]
    return bool(own) and root.exitcode in _ENDS and all(hit.weight <= Weight.VICTIM for hit in own)


def mute_ranks(readings: Sequence[Reading]) -> str:
    """In words, the ranks that the output names or counts and that have no error of their own; empty if none is.

    One rank alone that lost a peer has lost another one, also where nothing names it.
    """
    named = {rank for reading in readings for rank in reading.ranks}
    world = max((reading.world for reading in readings), default=0)
    spoke = {int(hit.rank.split()[-1]) for reading in readings for hit in reading.hits if hit.rank.startswith("rank ")}
    mute = (named | set(range(min(world, _MOST)))) - spoke
    if spoke and mute:
        return ranks_in_words(mute)
    return f"the ranks beside {ranks_in_words(spoke)}" if len(spoke) == 1 and not world else ""


def same_rank(name: str, other: str) -> bool:
    """Whether two names of a rank (`rank 3`, `local rank 3`, `process 3`) have the same number."""
    return bool(name and other) and name.split()[-1] == other.split()[-1]
