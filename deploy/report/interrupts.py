"""Count Ctrl-C (a second one within two seconds asks whether to end the run), SIGTERM and closed terminals.

Before a run has started, the first signal ends the command: it undoes what it made, and a second Ctrl-C does not
interrupt that. After `hold`, signals are only counted, and the follower of the run reads the count. Then Ctrl-C stops a
run on this machine, but only leaves a run on hosts: that run continues, and stops only if the user answers yes. Ctrl-Z
returns the terminal to the shell.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any

from ..core.text import in_seconds
from .console import Console

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A scheduler that started this command sends these to ask a script for a checkpoint. Unhandled, they would end this
# command, and with it the run.
_SCRIPT_SIGNALS, _MOST_PASSED = (signal.SIGUSR1, signal.SIGUSR2), 16
# A second Ctrl-C within this time asks whether to stop the run.
_AGAIN_S = 2.0
CONTINUES = "the run continues"


class Detached(Exception):
    """The user left the run, or the terminal is gone: the run continues without this command."""


class Interrupts:
    """Counts requests to stop within its `with`. `doing`: the current step; `left`: what a stop leaves behind.

    `detaches`: the run continues if the terminal closes. Otherwise a closed terminal asks the run to stop, as Ctrl-C
    does.
    """

    def __init__(self, console: Console, doing: str = "", left: str = "", detaches: bool = True) -> None:
        self._console, self._detaches = console, detaches
        self.doing, self.left = doing, left
        self._count, self._announced, self._gone, self._raises = 0, 0, False, True
        self._come_back = self._stop = ""
        self._how_left: Callable[[], str] = lambda: CONTINUES
        self._left, self._leaves_at = 0, float("inf")
        self._before: dict[signal.Signals, Any] = {}
        self._passed: list[signal.Signals] = []
        self._opening = ExitStack()

    def __enter__(self) -> Interrupts:
        # Only the main thread may set handlers. In another thread of a program, the program's own handlers stay.
        if threading.current_thread() is threading.main_thread():
            numbers = {*_SIGNALS, *_SCRIPT_SIGNALS, signal.SIGTSTP}
            if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # under nohup, a closed terminal ends nothing
                numbers.remove(signal.SIGHUP)
            self._before = {number: signal.signal(number, self._handle) for number in numbers}
        self._opening.enter_context(self._console.opening(lambda: self.doing))
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, _: object) -> None:
        self._opening.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(raised, KeyboardInterrupt) and self.doing:
            raise KeyboardInterrupt(f"stopped while {self.doing}: {self.left}") from raised

    def at(self, doing: str, left: str = "") -> None:
        """Set the current step, for the message of a stop."""
        self.doing, self.left = doing, left or self.left

    def hold(self) -> None:
        """From now on, only count signals: they interrupt nothing."""
        self._raises = False

    def leave_by_ctrl_c(self, come_back: str, stop: str, left: Callable[[], str] = lambda: CONTINUES) -> None:
        """From now on, Ctrl-C leaves the run. The message has how it is `left`, `come_back` and `stop`."""
        self._come_back, self._stop, self._how_left = come_back, stop, left

    def tell_way_back(self) -> None:
        """Print how the run was left and how to come back, if a person can answer or the output's reader is gone."""
        if self._console.asks or self._console.gone:
            self._console.warn(self._way_back())

    def _way_back(self) -> str:
        return f"{self._how_left()}\n  to come back: {self._come_back}\n  to stop it:   {self._stop}"

    def ask(self) -> None:
        """Act as if Ctrl-C was pressed once, for a command whose purpose is to stop a run."""
        self._count += 1

    def take_passed(self) -> list[signal.Signals]:
        """The signals for the ranks that arrived since the last call; prints a note about each."""
        passed, self._passed = self._passed, []
        for number in passed:
            self._console.note(f"sending {number.name} to the ranks")
        return passed

    def requests(self) -> int:
        """How often a stop was requested; prints what each request does. Raises Detached if the user leaves the run."""
        gone = self._gone or self._console.gone
        if gone and self._detaches:
            raise Detached
        if self._come_back:
            self._leave()
        if self._come_back:
            return 0
        count = max(self._count, int(gone))
        if count > self._announced:
            self._announced = count
            self._console.warn(
                "killing every node" if count > 1 else "stopping, with time to save (Ctrl-C now kills the run)"
            )
        return count

    def _leave(self) -> None:
        """Raise Detached soon after a Ctrl-C. If a second one follows in time and the user says yes, stop the run."""
        if self._count > self._left:
            first, self._left = not self._left, self._count
            if first:
                if not self._console.asks:
                    self._console.warn(self._way_back())
                    raise Detached
                self._console.warn(f"{self._how_left()}; press Ctrl-C again within {in_seconds(_AGAIN_S)} to stop it")
            self._leaves_at = time.monotonic() + _AGAIN_S
            if self._count > 1:
                self._ask_to_stop()
        if time.monotonic() > self._leaves_at:
            raise Detached

    def _ask_to_stop(self) -> None:
        self._raises = True
        try:
            yes = self._console.ask("stop the run?")
        except KeyboardInterrupt:
            yes = False
        self._raises = False
        if not yes:
            raise Detached
        self._count, self._come_back = 1, ""

    def _suspend(self) -> None:
        """Handle Ctrl-Z: give the terminal, with its cursor, to the shell until `fg`; what appears there stays."""
        with self._console.below():
            # The system's default handling: if no shell can resume this process, the system does not stop it.
            signal.signal(signal.SIGTSTP, self._before[signal.SIGTSTP])
            signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._suspend()
            return
        if number in _SCRIPT_SIGNALS:
            self._passed = [*self._passed, signal.Signals(number)][:_MOST_PASSED]
            return
        if number == signal.SIGHUP:  # the terminal is gone; writing would raise in the middle of something
            self._gone = True
            self._console.mute()
        if number == signal.SIGTERM and self._come_back:
            self._gone = True
        elif number != signal.SIGHUP or not self._detaches:
            self._count += 1
        if self._raises:
            self._raises = False
            raise KeyboardInterrupt
