"""The view of a run where there is no terminal: lines."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..run.events import Event
from ..run.progress import State
from . import text as lines

_EVERY_S = 2.0


class PlainView:
    """The run's story as it happens, and a line of numbers every two seconds."""

    def __init__(self, say: Callable[[str, str], None], state: State, recipe: str, why: str) -> None:
        self._say, self._state = say, state
        self._lines_shown = 0
        self._last, self._step, self._shown = time.monotonic(), 0, ""
        say("   ".join(["muster", *lines.headline(state.names, state, recipe, why)]), "node")

    def tell(self, events: list[Event]) -> None:
        for line in self._state.story[self._lines_shown :]:
            self._say(line.text, "warn" if line.grave else "")
        self._lines_shown = len(self._state.story)
        now = time.monotonic()
        if self._state.step != self._step and now - self._last >= _EVERY_S:
            self._last, self._step = now, self._state.step
            self._tell_numbers()

    def close(self) -> None:
        """The last numbers, where newer ones have come since the last line."""
        if self._state.step:
            self._tell_numbers()

    def _tell_numbers(self) -> None:
        words = lines.progress_line(self._state)
        if words != self._shown:
            self._shown = words
            self._say(words, "")
