"""A node whose trouble the story has named, and that is well again: the words for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.facts import NodeState
from ..core.text import in_seconds
from .causes import Finding
from .evidence import Evidence


@dataclass
class Named:
    """The nodes whose trouble the story has named: the trouble, and since when."""

    troubles: dict[str, tuple[str, float]] = field(default_factory=dict)

    def take(self, finding: Finding, evidence: Evidence) -> None:
        """A finding has been told. One that names a node in trouble names all that are in trouble."""
        if finding.node in evidence.troubles:
            self.troubles |= evidence.troubles

    def well(self, node: NodeState, who: str, t: float) -> str:
        """What to say of a node, with its name as messages have it; empty unless a trouble that was named is over.

        One that starts again is told of as a restart.
        """
        if node.trouble or node.node not in self.troubles:
            return ""
        trouble, since = self.troubles.pop(node.node)
        if node.state != "running":
            return ""
        if trouble == "paused":
            return f"{who} is no longer paused, after {in_seconds(t - since)}"
        if trouble == "closed":
            return f"{who} may write into the run's folder again"
        return f"{who} answers again" if trouble == "unseen" else f"{who} shows life again"
