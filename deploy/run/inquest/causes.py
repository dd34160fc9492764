"""What an inquest finds: a cause from causes/end_causes.py, its culprit and a sentence about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...causes.end_causes import Cause


@dataclass(frozen=True)
class Finding:
    """A cause, its culprit and a sentence about it. `other`: the node at the other end of a failing link.

    `lasting`: the run can continue in spite of it. `t`: since when it holds, by this machine's clock.
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
        """Two findings with the same key are about the same trouble."""
        return self.cause, self.node, self.rank, self.other
