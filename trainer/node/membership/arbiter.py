"""The arbiter node (`--arbiter`): it votes on which nodes train, and does not train, until the run is over."""

from __future__ import annotations

import signal
import sys
import time

from muster.errors import FAILED, SIGNALLED, STOPPED

from ..parent_death import input_is_closed
from .min_nodes import Group

_LOOK_S = 0.1


def vote(group: Group, restarted_by_host: bool) -> int:
    """Vote until the run is over; returns the run's exit code, or this node's own code if it must end earlier.

    A request to stop does not end this loop, because the other nodes need a majority to agree on the run's end too. Two
    things end it: the host shuts down and starts this node again later, or this node must end itself (`Group.trouble`).
    """
    asked = set[int]()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda heard, _: asked.add(heard))
    while group.epoch.over is None:
        if input_is_closed():
            asked.add(signal.SIGINT)
        if restarted_by_host and signal.SIGTERM in asked:
            return SIGNALLED + signal.SIGTERM
        if why := group.reason_to_end():
            print(f"muster: {why}", file=sys.stderr, flush=True)
            return STOPPED if asked else FAILED
        time.sleep(_LOOK_S)
    return group.epoch.over
