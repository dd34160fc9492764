"""What an inquest finds: a cause of the list in causes/end_causes.py, its culprit and a sentence about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...causes.end_causes import Cause


@dataclass(frozen=True)
class Finding:
    """A cause, its culprit and a sentence about it. `other`: of a link that fails the other node.

    `lasting`: the run can go on in spite of it. `t`: since when, by this machine's clock.
    """

    cause: Cause
    message: str
    node: str = ""
    rank: int | None = None
    other: str = ""
    t: float = 0.0
    lasting: bool = False

    @property
    def key(self) -> tuple[Cause, str, int | None, str]:
        """What is the same in two findings of one thing."""
        return self.cause, self.node, self.rank, self.other
