"""Keep what the inquest finds while a run lasts: the first cause in time, and the link that is cut. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ...causes.end_causes import Cause
from ..events import Event, changes_nodes
from ..state.evidence import Evidence
from ..state.story import Story
from .causes import Finding
from .findings import findings

# Ranks that are stuck may move again and get stuck again: the story tells the same finding at most this many times.
_MOST_TOLD = 3
# These causes only say that no step is made. They are told again only after a step: an evaluation has many pauses.
_NO_STEP_CAUSES = (Cause.LOCKED_UP, Cause.MISMATCH, Cause.NOT_KNOWN)


@dataclass
class CutLink:
    """The first cut link, since when it is cut, and how often ranks had begun by then. No link is cut: no `finding`.

    It stays recorded while the ranks end and start again because of it; a step shows that the link works again.
    """

    finding: Finding | None = None
    t: float = 0.0
    starts: int = 0

    def look(self, finding: Finding | None, run: Evidence, now: float) -> None:
        """Record what the inquest finds about links at `now`.

        A cut is over once the inquest no longer finds it while the same ranks run. A cut link to a server that is not a
        node does no harm, and is left out.
        """
        starts = sum(run.ranks.starts.values())
        if finding and not {finding.node, finding.other or finding.node} <= set(run.nodes.names):
            finding = None
        if self.finding is None:
            self.finding, self.t, self.starts = finding, now, starts
        elif finding is None and self.starts == starts and not run.ranks.ends:
            self.finding = None


@dataclass
class Case:
    """The first cause in time in the current attempt, when it was found, and the link that is still cut."""

    finding: Finding | None = None
    found_at: float = 0.0
    cut: CutLink = field(default_factory=CutLink)
    _times_told: Counter[tuple[object, ...]] = field(default_factory=Counter)
    _since_step: set[tuple[object, ...]] = field(default_factory=set)

    def apply(self, event: Event) -> None:
        """Apply an event."""
        if event.get("kind") == "step":
            self.cut.finding = None  # the links work
            self._since_step.clear()
        elif event.get("kind") == "members" and changes_nodes(event):
            self.finding = None

    def look(self, run: Evidence, story: Story, now: float) -> None:
        """Tell the story what the inquest finds: each attempt's first cause, and findings that do not end a run."""
        known = findings(run, now)
        self.cut.look(next((each for each in known if each.cause == Cause.CUT_OFF), None), run, now)
        if self.finding and self.finding.key not in {each.key for each in known if not each.lasting}:
            self.finding = None  # the trouble is over, or more is known by now
        for finding in known:
            if not finding.lasting:
                if self.finding is not None:
                    continue
                self.finding, self.found_at = finding, now
            if self._times_told[finding.key] < (1 if finding.lasting else _MOST_TOLD) and self._is_news(finding):
                self._times_told[finding.key] += 1
                story.tell_finding(finding, run, now)

    def _is_news(self, finding: Finding) -> bool:
        """Whether the story may tell this finding: some causes are told only once between two steps."""
        known = finding.cause in _NO_STEP_CAUSES and finding.key in self._since_step
        self._since_step.add(finding.key)
        return not known
