"""The story of a run, line by line. Pure; record.py keeps it in timeline.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Happening:
    """One line of the run's story; `grave` marks a line that a reader must not miss."""

    t: float
    text: str
    grave: bool = False


class Story(list[Happening]):
    """The lines so far, in the order in which they became known.

    `written`: how many are on the disk. `late`: its follower came when the run was on its way.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written, self.late = 0, False
        self._known: frozenset[float] = frozenset()

    def recall(self, lines: Sequence[Happening]) -> None:
        """Begin with the lines of another follower of the run: the line for an event is then not repeated."""
        self.extend(lines)
        self.written, self.late, self._known = len(self), True, frozenset(line.t for line in self)

    @property
    def recalled(self) -> bool:
        """Whether another follower has told the beginning."""
        return bool(self._known)

    def tell(self, line: Happening) -> None:
        """Add a line."""
        if line.t not in self._known:
            self.append(line)
