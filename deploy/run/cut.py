"""The link that is cut: for how long, also while the ranks end and start again over it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .causes import Finding
from .evidence import Evidence


@dataclass
class CutLink:
    """The first cut link, since when it is cut, and how often ranks had begun by then. Without `finding`: none."""

    finding: Finding | None = None
    t: float = 0.0
    starts: int = 0

    def look(self, finding: Finding | None, evidence: Evidence, names: Collection[str], now: float) -> None:
        """Take what the inquest says of links at `now`. `names`: the nodes.

        A cut lasts until it is well again under the same ranks. A server that is not a node may be lost without harm.
        """
        starts = sum(evidence.starts.values())
        if finding and not {finding.node, finding.other or finding.node} <= set(names):
            finding = None
        if finding and self.finding is None:
            self.finding, self.t, self.starts = finding, now, starts
        elif finding is None and self.starts == starts and not evidence.ends:
            self.finding = None

    def clear(self) -> None:
        """A rank has made a step: the links serve."""
        self.finding = None
