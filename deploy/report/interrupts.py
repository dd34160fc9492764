"""Handle Ctrl-C, SIGTERM and a closed terminal, from the first to the last moment of one command.

Before a run has started, the first signal ends the command: it undoes what it made, and a second Ctrl-C does not
interrupt that. After `hold`, signals are only counted, and the follower of the run reads the count.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from .console import Console

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Detached(Exception):
    """The terminal is gone: the run goes on without us."""


class Interrupts:
    """What was asked while it is entered. `doing` is where the command stands, `left` what a stop leaves behind.

    `detaches`: the run goes on where the terminal goes away. Else that asks the run to stop, as a Ctrl-C does.
    """

    def __init__(self, console: Console, doing: str = "", left: str = "", detaches: bool = True) -> None:
        self._console, self._detaches = console, detaches
        self.doing, self.left = doing, left
        self._count, self._announced, self._gone, self._raises = 0, 0, False, True
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, _: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(raised, KeyboardInterrupt) and self.doing:
            raise KeyboardInterrupt(f"stopped while {self.doing}: {self.left}") from raised

    def at(self, doing: str, left: str = "") -> None:
        """Where the command stands now, for the message that a stop ends with."""
        self.doing, self.left = doing, left or self.left

    def hold(self) -> None:
        """From now on nothing is cut short: what comes is counted."""
        self._raises = False

    def ask(self) -> None:
        """As if Ctrl-C had come once: for a command whose purpose it is to stop."""
        self._count += 1

    def requests(self) -> int:
        """How often a stop was asked for; warns of what each does. Raises Detached where the terminal is gone."""
        gone = self._gone or self._console.gone
        if gone and self._detaches:
            raise Detached
        count = max(self._count, int(gone))
        if count > self._announced:
            self._announced = count
            first = "stopping on all hosts" if self._detaches else "stopping: waiting for a checkpoint"
            self._console.warn("killing every node" if count > 1 else f"{first} (Ctrl-C again kills)")
        return count

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:  # nobody reads on; writing would be an error in the middle of something
            self._gone = True
            self._console.mute()
        if number != signal.SIGHUP or not self._detaches:
            self._count += 1
        if self._raises:
            self._raises = False
            raise KeyboardInterrupt
