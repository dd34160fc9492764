"""The graceful stop: SIGTERM or Ctrl-C asks the loop to end with a checkpoint; after a verdict, signals are ignored.

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

# The agent deletes this file in its ranks' folder when the node is asked to stop. A file can be deleted even on a full
# disk.
UNASKED = "unasked"
_AGENT_SECONDS, _LOOK_SECONDS = 5.0, 0.02


class Stop:
    """SIGTERM or SIGINT sets `asked`, which a training loop reads in every step.

    `heard` counts signals of both kinds.
    """

    _listening: ClassVar[list[Stop]] = []

    def __init__(self) -> None:
        self.asked, self.heard = False, 0
        self._asked_at = 0.0
        # Called before this process ends because torchrun restarts it; False means that it will soon end by itself.
        self.before_restart: Callable[[], bool] = lambda: True

    def listen(self, local_rank: int | None = None) -> None:
        """Let SIGTERM and SIGINT set `asked` from now on. `local_rank` None means LOCAL_RANK.

        A handler that the script has set stays. Only the main thread can set a handler: in another thread this does
        nothing. If there are several objects, for example for two trainings in one script, the last one has the
        handler, and all of them are asked to stop.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            is_another = isinstance(getattr(handler, "__self__", None), Stop)
            if is_another or handler in (signal.SIG_DFL, signal.default_int_handler, signal.SIG_IGN):
                signal.signal(number, self._ask)
        self._listening.append(self)
        # The agent signals this process directly: a torchrun that gets a signal abandons its ranks and the other nodes.
        _tell_agent(local_rank, listens=os.getpid(), began=began(os.getpid()))

    @property
    def is_listening(self) -> bool:
        """Whether SIGTERM still comes to this object: the script may have set its own handler since."""
        return signal.getsignal(signal.SIGTERM) == self._ask

    def _ask(self, number: int, *_: object) -> None:
        self.heard += 1
        if self.is_restarted():
            # This node was not asked to stop: torchrun ends its ranks and starts them again, because a node joined or
            # left.
            if not self.before_restart():
                return
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        # torchrun forwards the same Ctrl-C immediately. A user who presses it again later does not want to wait for the
        # checkpoint.
        if number == signal.SIGINT and self.asked and time.monotonic() > self._asked_at + 1:
            raise KeyboardInterrupt
        self._asked_at = self._asked_at or time.monotonic()
        for stop in self._listening:
            stop.asked = True

    @staticmethod
    def is_restarted() -> bool:
        """Whether the signal came from torchrun, which restarts this rank, and not from a request to stop this node.

        If every process gets the signal (MUSTER_ALL_SIGNALLED), the agent may notice it later than this rank, so this
        waits for the agent.
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

        Under Muster's agent the code is 0: torchrun would start a rank with another code again. The agent is told about
        the stop.
        """
        _tell_agent(stopped=True)
        raise SystemExit(0 if os.environ.get("MUSTER_OUTCOME_DIR") else STOPPED)

    @staticmethod
    def ignore_signals() -> None:
        """Ignore the signals after the verdict: a signal would turn a good exit into a crash that torchrun restarts."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def began(process: int) -> str:
    """When a process began, in the kernel's units: a later process may get the same number. Empty if unknown."""
    with suppress(OSError, IndexError):
        # The kernel cuts the process name after 15 bytes, perhaps in the middle of a character.
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    return ""


def _tell_agent(local_rank: int | None = None, **about: Any) -> None:
    """Record which process the agent may ask to stop; for each local rank the newest row counts."""
    if agent := os.environ.get("MUSTER_OUTCOME_DIR"):
        number = os.environ.get("LOCAL_RANK", "0") if local_rank is None else local_rank
        note(Path(agent), stops=str(number), **about)
