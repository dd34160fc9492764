"""Record every 2 s, for the node's agent, what this rank's threads are doing.

With these records, the agent distinguishes a waiting rank from the rank for which the others wait
(trainer/node/hang/stuck_ranks.py).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...node.rank.looks import SECONDS, Looks
from ...node.rank.steps.recorder import Recorder
from ...node.variables import is_observed


@contextmanager
def stack_samples(local_rank: int, step: Callable[[], int]) -> Iterator[None]:
    """Record what this process does, and its `step`, in a thread while the block runs.

    Does nothing without an agent.
    """
    outcome = os.environ.get("MUSTER_OUTCOME_DIR")
    if not outcome or not is_observed(os.environ):
        yield
        return
    ends = threading.Event()
    thread = threading.Thread(
        target=_look, args=(os.path.join(outcome, f"{local_rank}.stacks"), step, ends), daemon=True, name="muster-looks"
    )
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(SECONDS)


def _look(path: str, step: Callable[[], int], ends: threading.Event) -> None:
    with suppress(OSError):
        looks, recorder, last, since = Looks(path), Recorder(), 0, time.time()
        while not ends.is_set():
            now, current = time.time(), step()
            if current != last:
                last, since = current, now
            about: dict[str, Any] = {"t": round(now, 3), "pid": os.getpid(), "step": current, "doing": ""}
            about["since_s"] = round(now - since, 3) if current else None
            rows = recorder.look(current, now - since)
            looks.take({**about, "collectives": rows} if rows else about)
            looks.arm()
            ends.wait(SECONDS)
        looks.pause()
