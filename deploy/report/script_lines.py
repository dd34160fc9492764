"""Show a person the lines that ranks print: of which ranks, with progress bars, without victims' tracebacks. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..causes.end_causes import Cause
from ..core.errors import UsageError
from ..core.printable import plain
from ..core.text import several
from ..job.options import FLAG
from ..run.events import Event
from ..run.progress import State


@dataclass(frozen=True)
class ShownRanks:
    """The ranks whose lines are shown (`numbers`; None: all)."""

    numbers: frozenset[int] | None

    def have(self, rank: int | None) -> bool:
        """Whether to show a line from this rank; None: a line that no rank printed."""
        return self.numbers is None or rank in self.numbers


# How many seconds a traceback is held back until it is known whether its rank is a victim; and how many of its lines.
_VERDICT_S, _MOST_HELD = 8.0, 300
# The marks at the beginning of a line: Muster's, and torch's where it reports a rank's end.
_RANK_MARK = re.compile(r"^(?:rank \d+  )?(?:\[rank\d+\]: ?)?")
_BEGINS = re.compile(r"(?:\[rank\d+\]: ?)?Traceback \(most recent call last\)")
_CHAIN = re.compile(r"During handling of the above exception|The above exception was the direct cause|Traceback \(most")
# What torch prints after a traceback, in the ranks that end.
_AFTER_TRACEBACK = re.compile(rf"(?:{_CHAIN.pattern})|\[?rank\d+\]?:\[[WE]|\[?[WE]\d{{4}} \d\d:")

# What gloo prints in a rank that has lost another rank.
_LOST = re.compile(r"Connection (?:closed|reset) by (?:remote )?peer")

_SPAN = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
RANK_0 = ShownRanks(frozenset({0}))


def shown_ranks(text: str) -> ShownRanks:
    """The ranks given with `--rank`, also in the form that messages use (`0-2, 5`); default 0. Raises UsageError."""
    if text == "all":
        return ShownRanks(None)
    spans = [_SPAN.fullmatch(part.strip()) for part in (text or "0").split(",")]
    each = [range(int(span[1]), int(span[2] or span[1]) + 1) for span in spans if span]
    if len(each) < len(spans) or not all(each):
        raise UsageError(
            f"{FLAG.rank} {text}: not a number", f"{FLAG.rank} 0,3 or {FLAG.rank} all; ranks are numbered from 0"
        )
    return ShownRanks(frozenset().union(*each))


@dataclass
class _Traceback:
    """The lines of a traceback that a rank began to print at `t`; `whole`: the exception below the frames has come."""

    t: float
    lines: list[str]
    whole: bool = False

    def has(self, line: str) -> bool:
        """Add a line if it belongs to the traceback: a frame, the exception, or a chained one. False if it does not."""
        bare = _RANK_MARK.sub("", line)
        if len(self.lines) >= _MOST_HELD:
            return False
        is_within = not bare or bare.startswith((" ", "\t"))
        if self.whole and not is_within and not _AFTER_TRACEBACK.match(bare):
            return False
        self.whole = (self.whole or not is_within) and not _CHAIN.match(bare)
        self.lines.append(line)
        return True


class ScriptLines:
    """Gathers the lines of `shown` ranks from events. `moving` is the line that a script is redrawing.

    A traceback is held back until the `state` knows how its rank ended: if the rank only lost another rank, a single
    line replaces the traceback.
    """

    def __init__(self, shown: ShownRanks, state: State) -> None:
        self._shown, self._lines, self._state = shown, list[str](), state
        self._named = shown.numbers is None or len(shown.numbers) > 1
        self._held = dict[int, _Traceback]()
        self.moving, self._size = "", 0

    def add_events(self, events: Sequence[Event], now: float = 0.0) -> None:
        """Add the output from new events."""
        ranks, numbers = self._state.ranks, self._shown.numbers
        # The world size of a launcher's or a role's ranks is not that of the run.
        began = [event for event in events if event["kind"] == "began" and not (event.get("launcher") or ranks.roles)]
        size = max((int(event.get("world", 0)) for event in began), default=0 if ranks.script else ranks.size)
        if numbers and size not in (0, self._size) and min(numbers) >= size:
            self._size = size
            self._lines.append(f"({FLAG.rank} {min(numbers)}: the run has {several(size, 'rank')}, numbered from 0)")
        for event in events:
            if event["kind"] == "output_left_out":
                many = "older lines" if event["lines"] is None else f"{event['lines']:,} lines"
                self._lines.append(f"({many} not shown here: they are in the logs)")
            elif event["kind"] == "output" and self._shown.have(event["rank"]):
                line = self._label(event) + plain(event["line"])
                self.moving = line if event["moving"] else ""
                if not event["moving"]:
                    self._take_line(event["rank"], line, plain(event["line"]), now)
        for rank in [*self._held]:
            self._settle(rank, now)

    def take_lines(self) -> list[str]:
        """The whole lines since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def close(self) -> None:
        """Show the tracebacks that are still held back, because the run is over."""
        for rank in [*self._held]:
            self._settle(rank, float("inf"))

    def _take_line(self, rank: int | None, line: str, bare: str, now: float) -> None:
        held = None if rank is None else self._held.get(rank)
        if held and held.has(line):
            return
        if held and rank is not None:  # the rank prints more after its traceback, so it lives
            self._lines += self._held.pop(rank).lines
        if rank is not None and _BEGINS.match(bare):
            self._held[rank] = _Traceback(now, [line])
        else:
            self._lines.append(line)

    def _settle(self, rank: int, now: float) -> None:
        """Show a rank's held traceback, or replace it with a line that the rank is a victim; or keep holding it."""
        held, state = self._held[rank], self._state
        end = state.ranks.ends.get(rank)
        # A launcher that ends because another node ended does not report its own end.
        is_victim = end.victim if end else any(_LOST.search(line) for line in held.lines)
        why = _why_lost(state, rank) if is_victim else ""
        if why:
            lines = several(len(self._held.pop(rank).lines), "line")
            self._lines.append(f"(rank {rank} {why}: the {lines} of its traceback are in the logs)")
        elif (end and not end.victim) or now - held.t > _VERDICT_S:
            self._lines += self._held.pop(rank).lines

    def _label(self, event: Event) -> str:
        if not self._named:
            return ""
        return f"{event['node']}  " if event["rank"] is None else f"rank {event['rank']}  "


def _why_lost(state: State, rank: int) -> str:
    """Why a rank that lost others is not at fault; empty if that is not known."""
    if state.case.finding and state.case.finding.cause == Cause.MISMATCH:
        return "waited in vain"
    blame = state.blame()
    if not blame or blame.rank in (None, rank):
        return ""
    several_there = len(state.ranks.launchers.ranks_of(blame.node)) > 1
    return f"lost {blame.node if several_there else f'rank {blame.rank}'}"
