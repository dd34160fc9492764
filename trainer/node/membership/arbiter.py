"""The node of `--arbiter`: it votes on who trains, and trains nothing itself, until all agree that the run is over."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Any

from muster.errors import FAILED, SIGNALLED, STOPPED

from .min_nodes import Group

_LOOK_S = 0.1


def vote(group: Group, restarted_by_host: bool) -> int:
    """Vote until the run is over; returns the code that it is over with.

    Who asks the run to stop waits for the others: their last word needs a majority as well.
    """
    asked: list[int] = []

    def ask(number: int, *_: Any) -> None:
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask)
    watch_input = os.environ.get("MUSTER_STOP_ON_EOF") == "1"
    while group.epoch.over is None:
        if watch_input and _closed():
            watch_input = False
            asked.append(signal.SIGINT)
        if restarted_by_host and signal.SIGTERM in asked:
            return SIGNALLED + signal.SIGTERM
        if why := group.trouble():
            print(f"muster: {why}", file=sys.stderr, flush=True)
            return STOPPED if asked else FAILED
        time.sleep(_LOOK_S)
    return group.epoch.over


def _closed() -> bool:
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable) and not os.read(0, 1024)
