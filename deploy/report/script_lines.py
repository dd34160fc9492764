"""The lines that ranks print, for a person: which ranks to show, and the line of a progress bar. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.errors import UsageError
from ..core.printable import plain
from ..job.options import FLAG
from ..run.events import Event


@dataclass(frozen=True)
class ShownRanks:
    """The ranks whose lines are shown; None: all."""

    numbers: frozenset[int] | None

    def have(self, rank: int | None) -> bool:
        """Whether to show a line of this rank; None: a line that no rank printed."""
        return self.numbers is None or rank in self.numbers


RANK_0 = ShownRanks(frozenset({0}))


def shown_ranks(text: str) -> ShownRanks:
    """The ranks of `--rank`; rank 0 by default. Raises UsageError."""
    if text == "all":
        return ShownRanks(None)
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text or "0"):
        raise UsageError(f"{FLAG.rank} {text}: not a number", f"{FLAG.rank} 0,3 or {FLAG.rank} all; ranks count from 0")
    return ShownRanks(frozenset(map(int, (text or "0").split(","))))


class ScriptLines:
    """Gathers the lines of `shown` ranks from events. `moving` is the line that a script redraws now."""

    def __init__(self, shown: ShownRanks) -> None:
        self._shown, self._lines = shown, list[str]()
        self._named = shown.numbers is None or len(shown.numbers) > 1
        self.moving = ""

    def add_events(self, events: Sequence[Event]) -> None:
        """Take the output from new events."""
        for event in events:
            if event["kind"] == "output_left_out":
                many = "older lines" if event["lines"] is None else f"{event['lines']:,} lines"
                self._lines.append(f"({many} are not shown here: the logs have them)")
            elif event["kind"] == "output" and self._shown.have(event["rank"]):
                line = self._label(event) + plain(event["line"])
                self.moving = line if event["moving"] else ""
                self._lines += [] if event["moving"] else [line]

    def take_lines(self) -> list[str]:
        """The whole lines since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def _label(self, event: Event) -> str:
        if not self._named:
            return ""
        return f"{event['node']}  " if event["rank"] is None else f"rank {event['rank']}  "
