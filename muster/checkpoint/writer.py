"""Writes checkpoints while training goes on: the loop calls `submit`, one thread does the rest.

Two snapshots are held at most: one being written and one waiting (the second is allocated only once a checkpoint is
due while another is being written). A third `submit` waits for the first write to end, and the wait counts as pause:
a disk that cannot keep up slows the run down, but no checkpoint that was asked for is skipped.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import LifoQueue
from typing import Any

from ..errors import TrainError
from . import store
from .manifest import STATE
from .snapshot import Snapshot


@dataclass(frozen=True)
class Written:
    """How a write ended: `path` and `bytes` of the new checkpoint, or the `error`; then the earlier ones stand."""

    step: int
    pause_ms: float
    write_ms: float
    path: Path | None = None
    bytes: int = 0
    error: TrainError | None = None


class BackgroundWriter:
    """The one writer of a checkpoints folder. `on_done` is called on its thread, once for each `submit`, in order."""

    def __init__(self, folder: Path, keep_last: int, keep_best: bool, on_done: Callable[[Written], None]) -> None:
        self._folder, self._keep_last, self._keep_best, self._on_done = folder, keep_last, keep_best, on_done
        self._writes: list[Future[Written]] = []
        # Last in, first out: the buffer that is already allocated is preferred.
        self._free: LifoQueue[Snapshot] = LifoQueue()
        for _ in range(2):
            self._free.put(Snapshot())
        # The executor's thread is no daemon: at exit, also after an exception, Python lets it end what it has begun.
        self._thread = ThreadPoolExecutor(1, "checkpoint", initializer=_give_way)

    def submit(self, step: int, state: dict[str, Any], metric: float | None, summary: dict[str, Any]) -> float:
        """Copy `state`, have it written as the checkpoint of `step`, and return the pause in milliseconds.

        A failed write (a full disk) is told to `on_done` and does not raise here. TypeError: see `Snapshot.take`.
        """
        began = time.perf_counter()
        for write in self._writes:
            if write.done():
                write.result()  # raises what no one expected, a bug in `on_done` say
        del self._writes[:-2]
        snapshot = self._free.get()
        try:
            copied = snapshot.take(state)
        except BaseException:
            self._free.put(snapshot)
            raise
        pause_ms = (time.perf_counter() - began) * 1e3
        self._writes.append(self._thread.submit(self._write, snapshot, step, copied, metric, summary, pause_ms))
        return pause_ms

    def finish(self) -> None:
        """Wait until everything submitted is written. Raises TrainError if the last write failed. No `submit` after."""
        self._thread.shutdown(wait=True)
        ended = [write.result() for write in self._writes]
        if ended and ended[-1].error:
            raise ended[-1].error

    def _write(
        self,
        snapshot: Snapshot,
        step: int,
        state: dict[str, Any],
        metric: float | None,
        summary: dict[str, Any],
        pause_ms: float,
    ) -> Written:
        began = time.perf_counter()
        path, size, error = None, 0, None
        try:
            path = store.write(self._folder, step, state, metric=metric, summary=summary)
            size = (path / STATE).stat().st_size
        except TrainError as failure:
            error = failure
        finally:
            self._free.put(snapshot)
        written = Written(step, pause_ms, (time.perf_counter() - began) * 1e3, path, size, error)
        if path:
            with suppress(OSError):  # the next one tries again
                store.prune(self._folder, self._keep_last, self._keep_best, proven=path)
        self._on_done(written)
        return written


def _give_way() -> None:
    """Let the training threads go first. On Linux a priority is a thread's own; elsewhere it would be the process's."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
