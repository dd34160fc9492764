"""The view of a run where there is no terminal: lines."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..core.text import in_seconds
from ..run.events import Event
from ..run.progress import State
from . import text as lines
from .patience import FIRST_S, THEN_S

_EVERY_S, _MOST_NAMES = 2.0, 4


class PlainView:
    """The run's story as it happens, and a line of numbers every two seconds; before that, now and then, the nodes."""

    def __init__(self, say: Callable[[str, str], None], state: State, recipe: str, why: str) -> None:
        self._say, self._state = say, state
        self._lines_shown = 0
        self._began = self._last = time.monotonic()
        self._opened = time.time()
        self._step, self._shown, self._patience = 0, "", FIRST_S
        say("   ".join(["muster", *lines.headline(state.names, state, recipe, why)]), "node")

    def tell(self, events: list[Event]) -> None:
        story = self._state.story
        for line in story[self._lines_shown :]:
            at = clock_time(line.t) if story.late and line.t < self._opened else ""  # it is no news
            self._say(f"{at}{line.text}", "warn" if line.grave else "")
        self._lines_shown = len(self._state.story)
        now = time.monotonic()
        if self._state.step not in (0, self._step) and now - self._last >= _EVERY_S:
            self._last, self._step = now, self._state.step
            self._tell_numbers()
        elif now - self._last >= self._patience and not self._state.ranks.began and not self._state.step:
            self._last, self._patience = now, THEN_S
            self._tell_nodes(now - self._began)

    def close(self) -> None:
        """The last numbers, where newer ones have come since the last line."""
        if self._state.step:
            self._tell_numbers()

    def _tell_nodes(self, seconds: float) -> None:
        by_word: dict[str, list[str]] = {}
        for name in self._state.names:
            by_word.setdefault(lines.node_word(name, self._state), []).append(name)
        words = [f"{_few(names)} {word}" for word, names in by_word.items()]
        self._say(f"{'; '.join(words)}   {in_seconds(round(seconds))}", "")

    def _tell_numbers(self) -> None:
        words = lines.progress_line(self._state)
        if words != self._shown:
            self._shown = words
            self._say(words, "")


def clock_time(t: float) -> str:
    """When something was, in front of what it was; with the day, if that is not today."""
    day = "" if time.localtime(t)[:3] == time.localtime()[:3] else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M:%S  ", time.localtime(t))


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_NAMES else f"{names[0]} and {len(names) - 1} more"
