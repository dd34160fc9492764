"""The last lines that ranks printed, for the page: rank 0's, and those of the rank that failed.

A rank's own log is read where it is here; else its node's console, of which `fab attach` has a copy. Both may hold
anything: the lines are cut, and the page makes their control characters visible.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...core.errors import BadAnswer
from ...core.names import node_name
from ...core.printable import console_line
from ...run import own_files
from ...run.output import rank_of
from .data import Run, number

LINES, LONGEST = 40, 400
_TAIL_BYTES = 64 << 10


@dataclass(frozen=True)
class LastLines:
    """The end of the output of one rank. `source`: the file in the run folder that has all of it."""

    rank: int
    node: str
    source: str
    lines: list[str]


def sections(run: Run) -> list[LastLines]:
    """For a script, and for a failed run of the trainer; without ranks that printed nothing."""
    failed = run.outcome.get("verdict") == "failed"
    culprit = number(run.outcome.get("rank")) if failed else None
    ranks = dict.fromkeys([*([0] if run.script else []), *([] if culprit is None else [int(culprit)])])
    return [last for rank in ranks if (last := _of_rank(run, rank)).lines]


def _of_rank(run: Run, rank: int) -> LastLines:
    node = run.nodes.get(rank, "")
    own = f"logs/rank-{rank}.log"
    if lines := _shown(_tail(run, own)):
        return LastLines(rank, node, own, lines)
    try:
        console = f"logs/{node_name(node)}.log"
    except BadAnswer:
        return LastLines(rank, node, own, [])
    on_node = [other for other, name in run.nodes.items() if name == node]
    marked = (rank_of(line, on_node) for line in _tail(run, console))
    return LastLines(rank, node, console, _shown([line for whose, line in marked if whose == rank]))


def _tail(run: Run, name: str) -> list[str]:
    """The last lines of a file in the run folder; none if it cannot be read."""
    try:
        with own_files.open_inside(run.folder, name) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode(errors="replace").split("\n")
    except OSError:
        return []
    return lines[1:] if size > _TAIL_BYTES and len(lines) > 1 else lines


def _shown(lines: list[str]) -> list[str]:
    """The last lines, shortened if too long; of a progress bar only its last state."""
    readable = [line for line in map(console_line, lines) if line]
    return [line if len(line) <= LONGEST else f"{line[:LONGEST]}…" for line in readable[-LINES:]]
