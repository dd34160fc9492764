"""Ctrl-C, SIGTERM and a terminal that goes away, from the first to the last moment of one command.

Before a run has started the first of them ends the command, once: what it made is taken back, and a second Ctrl-C does
not cut that short. From `hold` on they are counted, and the follower of the run reads what was asked of it.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from .console import Report

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Detached(Exception):
    """The terminal is gone: the run goes on without us."""


class Stopping:
    """What was asked while it is entered. `doing` is where the command stands, `left` what a stop leaves behind."""

    def __init__(self, report: Report, doing: str = "", left: str = "") -> None:
        self._report = report
        self.doing, self.left = doing, left
        self._count, self._said, self._gone, self._raises = 0, 0, False, True
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopping:
        self._before = {number: signal.signal(number, self._heard) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, _: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(raised, KeyboardInterrupt) and self.doing:
            raise KeyboardInterrupt(f"stopped while {self.doing}: {self.left}") from raised

    def at(self, doing: str, left: str = "") -> None:
        """Where the command stands now, for the word that a stop ends with."""
        self.doing, self.left = doing, left or self.left

    def hold(self) -> None:
        """From now on nothing is cut short: what comes is counted."""
        self._raises = False

    def ask(self) -> None:
        """As if Ctrl-C had come once: for a command whose purpose it is to stop."""
        self._count += 1

    def requests(self) -> int:
        """How often a stop was asked for since `hold`; says what each does. Raises Detached without a terminal."""
        if self._gone or self._report.gone:
            raise Detached
        if self._count > self._said:
            self._said = self._count
            self._report.warn("killing every node" if self._count > 1 else "stopping on all hosts (Ctrl-C again kills)")
        return self._count

    def _heard(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:  # nobody reads on; writing would be an error in the middle of something
            self._gone = True
            self._report.mute()
        else:
            self._count += 1
        if self._raises:
            self._raises = False
            raise KeyboardInterrupt
