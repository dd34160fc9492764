"""The orderly stop: SIGTERM or Ctrl-C asks the training loop to end, so that it can write a checkpoint first.

    stop = Stop()
    stop.listen()
    while not stop.asked: ...

Ask the other ranks before a step is left out: a signal reaches each rank at its own time.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

from .files import replace, surely

# In the agent's folder for its ranks, until somebody asks the node to stop: taking a file away needs no room on a disk.
UNASKED = "unasked"


class Stop:
    """`asked` is set by SIGTERM or SIGINT; a training loop reads it at every step."""

    def __init__(self) -> None:
        self.asked = False

    def listen(self, local_rank: int | None = None) -> None:
        """From now on the signals ask instead of killing. `local_rank`: this process's on its node (LOCAL_RANK)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        place = os.environ.get("LOCAL_RANK", "0") if local_rank is None else local_rank
        # The agent asks this process itself: a torchrun that is asked gives up on its ranks and on the other nodes.
        if agent := os.environ.get("MUSTER_OUTCOME_DIR"):
            surely(partial(replace, Path(agent) / f"{place}.pid", str(os.getpid())), Path(agent))

    def _ask(self, number: int, *_: object) -> None:
        if Path(os.environ.get("MUSTER_OUTCOME_DIR", ""), UNASKED).is_file():
            # Nobody asked this node to stop: torchrun ends its ranks to start them again, a peer having come or gone.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.asked = True

    @staticmethod
    def deafen() -> None:
        """Ignore the signals once the end is decided: one would turn a good exit into a death, which torchrun mends."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
