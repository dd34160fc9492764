"""The orderly stop: SIGTERM or Ctrl-C asks the loop to end with a checkpoint; after a verdict signals count no more.

    stop = Stop()
    stop.listen()
    while not stop.asked: ...

A signal reaches each rank at a different time, so the ranks must agree on the last step before one of them stops.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from .errors import STOPPED
from .reserve import note

# The agent deletes this file in the folder for its ranks when somebody asks the node to stop. A deletion works also on
# a full disk.
UNASKED = "unasked"
_AGENT_SECONDS, _LOOK_SECONDS = 5.0, 0.02


class Stop:
    """`asked` is set by SIGTERM or SIGINT; a training loop reads it at every step. `heard`: signals, of either kind."""

    _listening: ClassVar[list[Stop]] = []

    def __init__(self) -> None:
        self.asked, self.heard = False, 0
        self._asked_at = 0.0
        # Called before this process ends because torchrun starts it again; False: it will end by itself, and soon.
        self.before_restart: Callable[[], bool] = lambda: True

    def listen(self, local_rank: int | None = None) -> None:
        """Let SIGTERM and SIGINT set `asked` from now on. `local_rank` is LOCAL_RANK if it is None.

        A handler that the script has set stays. Only the main thread can set one: elsewhere this does nothing.
        Of several, such as those of two trainings in a script, the last has the handler, and all are asked.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            is_another = isinstance(getattr(handler, "__self__", None), Stop)
            if is_another or handler in (signal.SIG_DFL, signal.default_int_handler, signal.SIG_IGN):
                signal.signal(number, self._ask)
        self._listening.append(self)
        # The agent signals this process itself: a torchrun that gets a signal abandons its ranks and the other nodes.
        _tell_agent(local_rank, listens=os.getpid(), began=began(os.getpid()))

    @property
    def is_listening(self) -> bool:
        """Whether SIGTERM still comes here: a script may have set a handler of its own since."""
        return signal.getsignal(signal.SIGTERM) == self._ask

    def _ask(self, number: int, *_: object) -> None:
        self.heard += 1
        if self.is_restarted():
            # This node was not asked to stop: torchrun ends its ranks to start them again, because a node came or went.
            if not self.before_restart():
                return
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        # torchrun sends the same Ctrl-C on, at once; a person who presses it again will not wait for the checkpoint.
        if number == signal.SIGINT and self.asked and time.monotonic() > self._asked_at + 1:
            raise KeyboardInterrupt
        self._asked_at = self._asked_at or time.monotonic()
        for stop in self._listening:
            stop.asked = True

    @staticmethod
    def is_restarted() -> bool:
        """Whether a signal has come from torchrun, which starts this rank again: this node was not asked to stop.

        Where every process is signalled, the agent may hear later.
        """
        unasked = Path(os.environ.get("MUSTER_OUTCOME_DIR", os.devnull), UNASKED)
        patience = _AGENT_SECONDS if os.environ.get("MUSTER_ALL_SIGNALLED") == "1" else 0.0
        end = time.monotonic() + patience
        while unasked.is_file():
            if time.monotonic() >= end:
                return True
            time.sleep(_LOOK_SECONDS)
        return False

    @staticmethod
    def leave() -> NoReturn:
        """End the script that was asked to stop, once its state is saved. Raises SystemExit with code 75.

        A rank's own code makes torchrun start it again: below Muster's agent, which is told, it is 0.
        """
        _tell_agent(stopped=True)
        raise SystemExit(0 if os.environ.get("MUSTER_OUTCOME_DIR") else STOPPED)

    @staticmethod
    def ignore_signals() -> None:
        """Ignore the signals after the verdict: a signal would turn a good exit into a crash that torchrun restarts."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def began(process: int) -> str:
    """When a process began, as the kernel counts: a later one may have its number. Empty if that is not known."""
    with suppress(OSError, IndexError):
        # Its name is cut after 15 bytes, perhaps in the middle of a letter.
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    return ""


def _tell_agent(local_rank: int | None = None, **about: Any) -> None:
    """Note whom the agent may ask to stop; of each local rank the newest row counts."""
    if agent := os.environ.get("MUSTER_OUTCOME_DIR"):
        number = os.environ.get("LOCAL_RANK", "0") if local_rank is None else local_rank
        note(Path(agent), stops=str(number), **about)
