"""The live view of a run on a terminal: its nodes, its numbers and its story, redrawn in place.

Text from hosts, containers and scripts is wrapped in `Text`, which makes its control characters visible.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text as RichText

from ..core.printable import visible
from ..run.progress import State
from ..run.state.ranks import RankView
from ..run.state.story import Happening
from . import text as lines

_REFRESH_S = 0.125
# A terminal echoes `^C` after the last line. The view leaves room for it: if it wrapped onto a new line, the next view
# would be drawn one line too low.
_ECHO = len("^C")
_STORY_LINES = 4
# The lines of the view that are not nodes: headline, heads, bar, metrics, a line for hidden nodes, and the story.
_OTHER_LINES = 7 + _STORY_LINES


class Text(RichText):
    """Text with visible control characters. rich itself drops some of them and prints others."""

    def __init__(self, text: str = "", style: str | Style = "", **more: Any) -> None:
        super().__init__(visible(text), style, **more)

    def append(self, text: RichText | str, style: str | Style | None = None) -> Self:
        """Append text as rich does, with control characters made visible."""
        super().append(visible(text) if isinstance(text, str) else text, style)
        return self


def view(
    state: State, recipe: str, why: str, width: int, height: int, moving: str = "", whole: bool = False
) -> RenderableType:
    """The live view at one moment, as something that rich can print (the docs' picture is made from it, too).

    `moving` is the line that a script redraws, such as its progress bar. `whole`: this is the last view, so the lines
    of its story are not cut.
    """
    head, *rest = lines.headline(state, recipe, why)
    words = ("   ".join(rest), "quiet")
    title = Text.assemble(("muster", "node"), "   ", head, "   ", words, overflow="ellipsis", no_wrap=True)
    room = max(3, height - _OTHER_LINES)
    marks = lines.marks(state)
    ranks = _shown_ranks(state, marks)
    shown = _shown_nodes(state, room, {name for name, view in ranks.items() if view.rank not in marks})
    cells = [_node_row(name, state, ranks.get(name), marks) for name in shown]
    most = max(map(len, cells))
    heads: list[list[RichText]] = [[Text(head, "quiet") for head in (*lines.HEADS[:most], "")]]
    rows = [
        [*row, *[Text()] * (most - len(row)), Text(lines.machine_cell(name, state), "quiet")]
        for name, row in zip(shown, cells, strict=True)
    ]
    table = Table.grid(padding=(0, lines.GAP, 0, 0))
    # If a rank trains, at least these cells stay: its node, its number and its step.
    for row in lines.fitted(heads * (most > 2) + rows, width, min(3, most)):
        table.add_row(*row)
    parts: list[RenderableType] = [title, table]
    if len(shown) < len(state.names):
        more = len(state.names) - len(shown)
        parts.append(Text(f"  and {more} more nodes, the slowest rank at step {state.step}", "quiet"))
    if done := lines.bar(state, width - 9):
        parts.append(Text(f"  {done}", "ok"))
    if metrics := lines.metric_line(state, width - 1):
        parts.append(Text(f"  {metrics}", overflow="ellipsis", no_wrap=True))
    parts.append(_story(state.story[-_STORY_LINES:], whole, len(shown) + _STORY_LINES <= room))
    if moving:
        parts.append(Text(f"  {moving}", overflow="ellipsis", no_wrap=True))
    return Group(*parts)


class LiveView:
    """Draws the view on a terminal, again and again in the same place."""

    def __init__(self, console: RichConsole, state: State, recipe: str, why: str) -> None:
        self._console, self._state, self._recipe, self._why = console, state, recipe, why
        self._drawn, self._moving = 0.0, ""
        self._live = self._new()
        self._live.start(refresh=True)

    def _new(self) -> Live:
        return Live(
            self._view(), console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def tell(self, lines_above: Sequence[str] = (), moving: str = "") -> None:
        """Print the script's lines above the view, and draw the view again if that is due."""
        now, self._moving = time.monotonic(), moving
        for line in lines_above:
            self._console.print(Text(line), soft_wrap=True)
        if lines_above or now - self._drawn >= _REFRESH_S:
            self._drawn = now
            self._live.update(self._view(), refresh=True)

    def stop(self) -> None:
        """Stop drawing: what is printed next comes below the view and stays."""
        self._live.stop()

    def start(self) -> None:
        """Start a new view below what was printed in the meantime, which stays."""
        self._live = self._new()
        self._live.start()

    def close(self) -> None:
        self._live.update(self._view(whole=True), refresh=True)
        self._live.stop()

    def _view(self, whole: bool = False) -> RenderableType:
        width, height = self._console.size
        width -= _ECHO
        return Constrain(view(self._state, self._recipe, self._why, width, height, self._moving, whole), width)


def _shown_ranks(state: State, marks: Mapping[int, str]) -> dict[str, RankView]:
    """For each node, the rank that its row shows: the first marked rank, or else the first rank."""
    ranks = dict[str, RankView]()
    for _, view in sorted(state.ranks.views.items(), key=lambda pair: (pair[0] not in marks, pair[0])):
        ranks.setdefault(view.node, view)
    return ranks


def _shown_nodes(state: State, room: int, as_usual: Collection[str]) -> list[str]:
    """As many nodes as there is room for, in their order. Nodes with news have priority over those `as_usual`."""

    def is_usual(name: str) -> bool:
        return name in as_usual and name not in state.nodes.troubles and not lines.is_lost(name, state)

    chosen = {*sorted(state.names, key=is_usual)[:room]}
    return [name for name in state.names if name in chosen]


def _node_row(name: str, state: State, view: RankView | None, marks: Mapping[int, str]) -> list[RichText]:
    if view is None or lines.is_lost(name, state):
        return [Text(f"  {name}", "node"), Text(lines.node_word(name, state), "quiet")]
    cells, mark = lines.rank_cells(view, state), marks.get(view.rank, "")
    shown = Text.assemble((f"  {name}", "node"), (f" {mark}" * bool(mark), "warn"))
    styles = ["", "", *["quiet"] * len(cells)]
    return [shown, *(Text(cell, style) for cell, style in zip(cells, styles, strict=False))]


def _story(happenings: Sequence[Happening], whole: bool, roomy: bool) -> Table:
    """The lines with their times: `whole`, or cut at the edge. With `roomy`, grave lines are whole in any case."""
    table = Table.grid(Column(width=len("  00:00:00  "), no_wrap=True), "")
    for line in happenings:
        at = time.strftime("  %H:%M:%S", time.localtime(line.t))
        style, cut = "warn" if line.grave else "quiet", not (whole or (roomy and line.grave))
        table.add_row(Text(at, "quiet"), Text(line.text, style, overflow="ellipsis" if cut else "fold", no_wrap=cut))
    return table
