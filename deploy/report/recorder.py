"""A console for a program that calls Muster: it passes every event on as a value, and prints only if asked to.

Messages that a command would print for a person go to the logger `muster`: notes as INFO, warnings as WARNING.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from .console import Console, Value

_LOG = logging.getLogger("muster")
# Without this handler, Python would print warnings even if the program has not set up logging.
_LOG.addHandler(logging.NullHandler())


class Recorder(Console):
    """A console that calls `tell` with what `--json` would print, from the working thread.

    `show`: also print, as a command does. `over`: whether the caller no longer waits; a follower then leaves the run,
    which continues.
    """

    def __init__(
        self, tell: Callable[[Value], None], show: bool = False, over: Callable[[], bool] = lambda: False
    ) -> None:
        self._tell, self._show, self._over, self._gone = tell, show, over, False
        super().__init__(as_json=not show)
        self._out.quiet = self._err.quiet = not show

    @property
    def gone(self) -> bool:
        """Whether the caller has stopped waiting."""
        return self._gone or self._over()

    @gone.setter
    def gone(self, value: bool) -> None:
        self._gone = value

    def data(self, value: Value) -> None:
        """Pass an event on."""
        self._tell(value)

    def block(self, rows: Sequence[str]) -> None:
        """Print lines if asked to."""
        if self._show:
            super().block(rows)

    def ask(self, question: str, hint: str = "") -> bool:
        """Answer no, without asking."""
        return False

    def _data(self, value: Value) -> None:
        self._tell(value)

    def _say(self, text: str, style: str) -> None:
        if self._show:
            super()._say(text, style)
        else:
            _LOG.log(logging.WARNING if style == "warn" else logging.INFO, "%s", text)
