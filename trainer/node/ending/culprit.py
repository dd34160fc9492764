"""Which rank of this node failed first; the other ranks may have failed because of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .rank_lives import Life
from .script_verdict import LastWords


@dataclass(frozen=True)
class Failure:
    """A rank that failed: its life, its last words, how it ended, and the cause if its error does not show that."""

    life: Life
    last_words: LastWords
    how: str
    cause: str = ""


def first_to_fail(failures: Iterable[Failure]) -> Failure | None:
    """The first failure that is not a victim's, by its last words; of two at the same time, one by a signal."""
    own = [each for each in failures if not each.last_words.victim]
    return min(own, key=lambda each: (each.life.ended, (each.life.code or 0) > 0, each.life.rank), default=None)
