"""Find the first collective on which ranks that wait for each other do not agree. Pure.

The rows come from torch's flight recorder (contract.md: the event `stuck`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The words of gloo, NCCL and torch about ranks that disagree.
MISMATCH_WORDS = r"collective mismatch|mismatch between collectives|op\.preamble\.length <= op\.nbytes"
# In these collectives all ranks must pass the same size: a different size is a different collective.
_SAME_SIZE = ("all_reduce", "broadcast", "reduce")


@dataclass(frozen=True)
class Call:
    """A collective that a rank called: its number in its group, its name, its size, and the line in the script."""

    group: str
    number: int
    name: str
    size: str = ""
    file: str = ""
    line: int = 0
    function: str = ""

    @property
    def what(self) -> tuple[str, str]:
        """What all ranks of a group must agree on."""
        return self.name, self.size if self.name in _SAME_SIZE else ""


def calls(rows: Iterable[Sequence[Any]]) -> tuple[Call, ...]:
    """The rows of an event as calls."""
    return tuple(Call(*row) for row in rows)


def disagreement(by_rank: Mapping[int, Sequence[Call]]) -> dict[int, Call]:
    """The ranks' calls with the first number of a group on which they differ, by rank; empty if none differ."""
    by_number: dict[tuple[str, int], dict[int, Call]] = defaultdict(dict)
    for rank, own in by_rank.items():
        for call in own:
            by_number[call.group, call.number][rank] = call
    # A group's numbers grow, so the first difference is the cause of all later ones.
    for _, of in sorted(by_number.items(), key=lambda pair: pair[0][1]):
        if len({call.what for call in of.values()}) > 1:
            return of
    return {}


def alike(of: Mapping[int, Call]) -> list[tuple[list[int], Call]]:
    """Groups of ranks that made the same call, each with one such call; the smallest group first."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, call in sorted(of.items()):
        groups[call.what].append(rank)
    return sorted(((ranks, of[ranks[0]]) for ranks in groups.values()), key=lambda pair: len(pair[0]))
