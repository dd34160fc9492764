"""The only module that writes to the terminal: a live view there, plain lines elsewhere, JSON for programs.

Standard output is for data (results, listings, JSON lines), standard error for messages. text.py has the words. Text
from hosts, containers and scripts is never interpreted as markup, and its control characters are made visible
(printable.py): `_VisibleConsole` checks every piece of text just before it is written.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text as RichText
from rich.theme import Theme

from ..core.errors import FULL, DeployError, UsageError
from ..core.printable import visible
from ..run.events import Event
from ..run.progress import State
from ..send.road.guide import Tell
from . import plain_view
from . import text as lines
from .live_view import LiveView, Text
from .plain_view import PlainView, Transfers
from .script_lines import RANK_0, ScriptLines, ShownRanks

# A line of --json.
Value = dict[str, Any]
# Each colour is readable on a light and on a dark background (a contrast of 4 to 1, or nearly). Yellow and cyan are not
# readable on white.
_COLOURS = {"ok": "bold green4", "bad": "bold red", "warn": "dark_orange3", "hint": "turquoise4"}
THEME = Theme({"node": "bold", "quiet": "dim", **_COLOURS})
_VERDICT_STYLES = {"done": "ok", "stopped": "warn", "running": "hint", "failed": "bad", "unfinished": "quiet"}
# A step that takes longer than _PATIENCE_S is shown. A command that has shown nothing yet shows its step after
# _OPENING_S.
_PATIENCE_S, _OPENING_S = 2.0, 1.0
_LAST_LINES = 100


class Console:
    """The output of one command. `as_json`: print every event and the result as one JSON object per line."""

    def __init__(self, as_json: bool = False, out: RichConsole | None = None, err: RichConsole | None = None) -> None:
        self.as_json = as_json
        self._out = out or _console(sys.stdout)
        self._err = err or _console(sys.stderr)
        self.gone = self._follows = False
        self.lost: OSError | None = None  # why the output is incomplete although its reader has not left (a full disk)
        self._live: LiveView | Live | None = None
        self._opening, self._due = ExitStack(), 0.0
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)  # the last lines that the run's ranks printed

    def note(self, text: str) -> None:
        """Print a message, such as a step that takes a while, or an unexpected result."""
        self._say(text, "quiet")

    def warn(self, text: str) -> None:
        """Print a warning: something will not happen as the user asked."""
        self._say(text, "warn")

    def mute(self) -> None:
        """Print nothing more: the terminal or a pipe's reader is gone. Sets `gone`, so that callers can stop."""
        self.gone = True
        self._out.file = self._err.file = open(os.devnull, "w")  # noqa: SIM115 (open until the process ends)

    def data(self, value: Value) -> None:
        """Print a JSON line with --json; otherwise nothing."""
        if self.as_json:
            self._data(value)

    def text(self, text: str) -> None:
        """Print text for people to standard output; nothing with --json."""
        if not self.as_json:
            self._print(self._out, Text(text))

    def line(self, text: str, value: Value | None = None) -> None:
        """Print `text`, or `value` with --json (nothing if there is no value)."""
        self.text(text)
        if value:
            self.data(value)

    @contextmanager
    def transferring(self, hosts: Sequence[str], then: str = ", loading") -> Iterator[Tell]:
        """Show the progress of a push or a fetch; yields the function that reports it. `then`: as in `Transfers`."""
        transfers = Transfers(hosts, then)
        with self._passing(transfers.rows, transfers.line):
            yield transfers.note_progress

    @contextmanager
    def waiting(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show the current phase after a while; yields `say(phase)`, which any thread may call."""
        latest, began = {"phase": ""}, time.monotonic()

        def rows(room: int) -> list[tuple[str, str]]:
            return [(what, f"{latest['phase']}   {plain_view.since(began)}")]

        with self._passing(rows, lambda: f"{what}   {latest['phase']}".rstrip()):
            yield lambda phase: latest.update(phase=phase)

    @contextmanager
    def opening(self, step: Callable[[], str]) -> Iterator[None]:
        """On a terminal, show the current step of a command that has printed nothing for a while, until it does."""
        self._due, began = time.monotonic() + _OPENING_S, time.monotonic()
        with ExitStack() as stack:
            if self._draws() and not self.as_json:
                stack.enter_context(self._passing(lambda _: [(step(), plain_view.since(began))], step))
            self._opening = stack
            yield

    @contextmanager
    def _passing(self, rows: Callable[[int], list[tuple[str, str]]], line: Callable[[], str]) -> Iterator[None]:
        """Show a long step: on a terminal, after a while, as `rows`; otherwise as a `line` from time to time."""
        self._opening.close()
        if self.as_json or not self._draws():
            with plain_view.ticking(line, self.note):
                yield
            return

        def view() -> RenderableType:
            table = Table.grid(padding=(0, 3, 0, 0))
            for name, words in rows(max(3, self._err.size.height - 2)):
                table.add_row(Text(name, "node"), Text(words, "quiet", overflow="ellipsis", no_wrap=True))
            return table

        live = self._live = Live(console=self._err, get_renderable=view, transient=True, redirect_stdout=False)
        wait_s = self._due - time.monotonic() if self._due else _PATIENCE_S
        timer = threading.Timer(wait_s, live.start, (True,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            self._live = None
            with suppress(OSError):  # the next line to be written meets the same error and handles it
                live.stop()

    def error(self, fault: DeployError) -> None:
        """Print an expected fault, with its hint."""
        self._print(self._err, Text.assemble(("error:", "bad"), f" {lines.indented(fault.message)}"))
        if fault.hint:
            self.hint(lines.indented(fault.hint))
        if self.as_json:
            self._data({"kind": "error", "message": fault.message, "hint": fault.hint})

    @contextmanager
    def following(
        self, state: State, recipe: str, why: str, ranks: ShownRanks = RANK_0
    ) -> Iterator[Callable[[list[Event]], None]]:
        """Show a run while it lasts, and what `ranks` print; yields the function to call with new events."""
        self._follows = True
        self._opening.close()
        if self.as_json:
            shown = 0

            def tell_data(events: list[Event]) -> None:
                nonlocal shown
                story, shown = state.story[shown:], len(state.story)
                self.values([*events, *({"kind": "story", **asdict(line)} for line in story)])

            yield tell_data
            tell_data([])
            return
        live = self._live = LiveView(self._err, state, recipe, why) if self._draws() else None
        view = live or PlainView(self._say, state, recipe, why)
        lines_of, above = ScriptLines(ranks, state), bool(live and self._out.is_terminal)

        def tell(events: list[Event]) -> None:
            lines_of.add_events(events, time.monotonic())
            script_lines = lines_of.take_lines()
            self._last_lines.extend(script_lines)
            if script_lines and not above:
                self.block(script_lines)
            self._safely(lambda: view.tell(script_lines if above else [], lines_of.moving))

        try:
            yield tell
        finally:
            lines_of.close()
            tell([])
            self._live = None
            self._safely(view.close)

    def result(self, outcome: Value, known: Value, where: str, folder: str, fetch: str = "") -> None:
        """Show how a run ended, and where its files are. `known`: the run's record, for its nodes and its script.

        `where` is the page, `folder` the run folder, `fetch` the command that copies the run's files from its hosts.
        """
        self.data({"kind": "result", **outcome, "report": where, "folder": folder})
        if self.as_json:
            return
        is_fault = outcome["verdict"] in ("failed", "refused")
        if is_fault:
            fault = lines.without_traceback(lines.fault_text(outcome), self._last_lines)
            self.error(DeployError(fault, outcome["hint"]))
        head, *rest = lines.result_parts(outcome, known, where)
        self._print(self._out, Text.assemble((head, _VERDICT_STYLES.get(head, "bad")), "  ", "   ".join(rest)))
        rate = f"{outcome['samples_per_s']:,.0f} samples/s   " if outcome["samples_per_s"] else ""
        self._print(self._out, Text(f"      {rate}{lines.left_line(outcome, known, folder, fetch)}", "quiet"))
        if outcome["hint"] and not is_fault:
            self.hint(outcome["hint"])

    def values(self, rows: Iterable[Value]) -> None:
        """Print each object as a line of JSON."""
        for row in rows:
            self._data(row)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], values: Iterable[Value] = ()) -> None:
        """Print rows in columns, or `values` with --json.

        A terminal gets a table that fits its width; elsewhere every row is one whole line.
        """
        if self.as_json:
            self.values(values)
            return
        if not rows:
            return
        if not self._out.is_terminal:
            for line in lines.aligned(rows):
                self._print(self._out, Text(line))
            return
        # An empty column would take room from the others, so it is left out.
        every = zip(head or [""] * len(rows[0]), *rows, strict=True)
        filled = [column for column in every if any(column[1:])]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(head), header_style="quiet")
        for column in filled:  # only the last column shrinks: its long lines lose their ends
            table.add_column(Text(column[0], no_wrap=True), no_wrap=column is not filled[-1])
        for first, *cells in zip(*(column[1:] for column in filled), strict=True):
            styled = [Text(cell, _VERDICT_STYLES.get(cell, ""), no_wrap=True, overflow="ellipsis") for cell in cells]
            table.add_row(Text(first, "node"), *styled)
        self._safely(lambda: self._out.print(table))

    def block(self, rows: Sequence[str]) -> None:
        """Print many lines of data in one call, unstyled: there may be millions."""
        self._safely(lambda: print(visible("\n".join(rows)), file=self._out.file, flush=True))

    def page(self, text: str) -> None:
        """Print a page of Markdown: laid out on a terminal, elsewhere as its source."""
        if not self._out.is_terminal:
            self.block(text.rstrip().splitlines())
            return
        from rich.markdown import Markdown  # imported here, so that its parser is loaded only for a page

        self._safely(lambda: self._out.print(Markdown(text, hyperlinks=False), width=min(self._out.width, 110)))

    def hint(self, text: str) -> None:
        """Print a hint, such as the next command."""
        self._print(self._err, Text.assemble(("hint:", "hint"), f" {text}"))

    @property
    def asks(self) -> bool:
        """Whether a person at a terminal can answer."""
        return self._err.file.isatty() and sys.stdin.isatty() and not self.as_json

    def ask(self, question: str, hint: str = "type the command on a terminal") -> bool:
        """Ask a person on the terminal, below the view of a run; any answer but yes means no.

        Raises UsageError, with the hint, if there is no terminal.
        """
        if not sys.stdin.isatty():
            raise UsageError(f"there is no terminal to ask you on: {question}", hint)
        with self.below():
            self._safely(lambda: self._err.print(Text(f"{question} [y/N] "), end="", soft_wrap=True))
            return sys.stdin.readline().strip().lower() in ("y", "yes")

    @contextmanager
    def below(self) -> Iterator[None]:
        """Stop the live view during the `with`, so that any output then comes below it and stays."""
        self._opening.close()
        if live := self._live:
            self._safely(live.stop)
        yield
        if live:
            self._safely(live.start)

    def _draws(self) -> bool:
        """Whether there is a terminal that only this process writes to: no `tee`, and no shell in the foreground."""
        with suppress(OSError, ValueError, AttributeError):  # a program's own file object may have no descriptor
            out, err = (console.file.fileno() for console in (self._out, self._err))
            if stat.S_ISFIFO(os.fstat(out).st_mode) or os.tcgetpgrp(err) != os.getpgrp():
                return False
        return self._err.is_terminal

    def _say(self, text: str, style: str) -> None:
        self._print(self._err, Text(text, style))

    def _data(self, value: Value) -> None:
        try:
            text = json.dumps(value, allow_nan=False)
        except ValueError:  # a loss may be NaN, which JSON does not have and few readers accept
            text = json.dumps(json.loads(json.dumps(value), parse_constant=lambda word: None))
        self._safely(lambda: print(text, file=self._out.file, flush=True))

    def _safely(self, write: Callable[[], None]) -> None:
        """Write. If the reader of the output is gone, become silent instead of failing in the middle of a run."""
        self._opening.close()
        self._due = 0.0
        try:
            write()
        except OSError as fault:
            # While a run is followed, its end alone decides the exit code.
            if fault.errno in FULL and not self._follows:
                self.lost = fault
            if self.gone:
                self.mute()
            # Usually the reader of a pipe has left, and standard error still has a reader. If not, the next line fails.
            self.gone = True
            self._out.file = open(os.devnull, "w")  # noqa: SIM115 (open until the process ends)

    def _print(self, console: RichConsole, text: RichText) -> None:
        # Without soft wrap, rich would break paths at 80 columns if there is no terminal.
        self._safely(lambda: console.print(text, soft_wrap=True))


class _VisibleConsole(RichConsole):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """rich's output, with control characters in text made visible. rich's own come in control segments."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))

    def on_broken_pipe(self) -> None:
        """Raise. rich would end the process here, and nothing would follow the run any more."""
        raise BrokenPipeError


def _console(file: Any) -> RichConsole:
    # FORCE_COLOR gives a pipe colours, but does not make it a terminal: its lines are not cut or redrawn.
    draws = getattr(file, "isatty", bool)() and os.environ.get("TERM") not in ("dumb", "unknown")
    own: Value = {"force_terminal": draws, "theme": THEME, "markup": False, "emoji": False, "highlight": False}
    if os.environ.get("FORCE_COLOR") and not draws:
        own["color_system"] = "standard"
    return _VisibleConsole(file=file, **own)
