"""Writes checkpoints while training continues: the loop calls `submit`, and a background thread does the rest.

There are at most two snapshots: the thread writes one while the other waits. The second snapshot gets its memory only
when a checkpoint is due during a write. A third `submit` waits for the end of the first write, and the reported pause
includes this wait: a slow disk slows down the run, but the writer skips no checkpoint.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import LifoQueue
from typing import Any

from .. import exchange
from ..errors import TrainError
from . import cut, store
from .joint import Joint
from .manifest import STATE
from .shards import part_of
from .snapshot import Snapshot
from .trained_parts import Part, collect


@dataclass(frozen=True)
class WriteResult:
    """The result of a write: `path` and `bytes` of the new checkpoint, or the `error`."""

    step: int
    pause_ms: float
    write_ms: float
    path: Path | None = None
    bytes: int = 0
    error: TrainError | None = None


def open_writer(
    folder: Path,
    keep_last: int,
    keep_best: bool,
    on_done: Callable[[WriteResult], None],
    parts: Mapping[str, Part],
    writes: bool,
    alone: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> BackgroundWriter | None:
    """Open the writer of `parts` on this rank; all ranks write together if the parts are split over them.

    All ranks call this; it returns None on a rank that writes nothing. All ranks of a joint writer submit the same
    steps. `writes`: whether this rank writes a state that is not split. `alone`: a context manager that is entered for
    each write of such a state.
    """
    joint = Joint(folder) if cut.is_cut(collect(parts)) else None
    return BackgroundWriter(folder, keep_last, keep_best, on_done, joint, alone) if joint or writes else None


class BackgroundWriter:
    """The only writer of a checkpoints folder. Its thread calls `on_done` once for each `submit`, in order.

    With `joint`, each rank writes its part of a state that is split over the ranks.
    """

    def __init__(
        self,
        folder: Path,
        keep_last: int,
        keep_best: bool,
        on_done: Callable[[WriteResult], None],
        joint: Joint | None = None,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._joint, self._alone = joint, alone
        self._folder, self._keep_last, self._keep_best, self._on_done = folder, keep_last, keep_best, on_done
        self._writes: list[Future[WriteResult]] = []
        self._newest, self._after = store.newest_time(folder), 0.0
        # Last in, first out, so that the loop takes a buffer that is already allocated.
        self._free: LifoQueue[Snapshot] = LifoQueue()
        for _ in range(2):
            self._free.put(Snapshot())
        # The executor's thread is not a daemon: at exit, also after an exception, Python waits until it has finished.
        self._thread = ThreadPoolExecutor(1, "checkpoint", initializer=_lower_priority)

    def continue_after(self, created: float) -> None:
        """Continue from a checkpoint written at `created`, perhaps by another host, whose clock may be ahead."""
        self._after = created

    def now(self) -> float:
        """The time for the next checkpoint: later than those in the folder, the previous one, and `continue_after`."""
        self._after = max(store.now(self._folder), self._after + 0.001)
        return self._after

    def submit(
        self,
        step: int,
        state: dict[str, Any],
        metric: float | None,
        summary: dict[str, Any],
        created: float | None = None,
    ) -> float:
        """Copy `state`, start to write it as the checkpoint of `step`, and return the pause in milliseconds.

        `created`: the checkpoint's time, when ranks write the same one to several disks. If the write fails, for
        example on a full disk, `on_done` gets the error. Raises TypeError for the same states as `Snapshot.take`.
        """
        began = time.perf_counter()
        for write in self._writes:
            if write.done():
                write.result()  # raises an unexpected error, such as a bug in `on_done`
        del self._writes[:-2]
        snapshot = self._free.get()
        try:
            copied = snapshot.take(part_of(state, exchange.rank_and_world()[0]) if self._joint else state)
        except BaseException:
            self._free.put(snapshot)
            raise
        pause_ms = (time.perf_counter() - began) * 1e3
        self._writes.append(
            self._thread.submit(self._write, snapshot, step, copied, metric, summary, pause_ms, created)
        )
        return pause_ms

    def finish(self) -> None:
        """Wait for all writes and end the thread; raises like `wait`. Do not call `submit` after this."""
        self._thread.shutdown(wait=True)
        self.wait()

    def wait(self) -> None:
        """Wait for all writes. Raises TrainError if the last one failed."""
        results = [write.result() for write in self._writes]
        if results and results[-1].error:
            raise results[-1].error

    def _refuse_late(self, step: int) -> None:
        """Raise TrainError if another process has written a checkpoint since this one's last.

        Then this process was paused, and other processes have continued the run. Its checkpoint would be the newest by
        time, but not the one with the most steps.
        """
        if store.newest_time(self._folder) > self._newest:
            raise TrainError(
                f"{self._folder}: other nodes continue the run, so the checkpoint of step {step} is not written here"
            )

    def _write(
        self,
        snapshot: Snapshot,
        step: int,
        state: dict[str, Any],
        metric: float | None,
        summary: dict[str, Any],
        pause_ms: float,
        created: float | None,
    ) -> WriteResult:
        began = time.perf_counter()
        path, size, error = None, 0, None
        with self._alone():
            try:
                if self._joint:
                    path, size = self._joint.write(self._folder, step, state, metric, summary)
                else:
                    self._refuse_late(step)
                    path = store.write(
                        self._folder, step, state, metric=metric, summary=summary, created=created or self.now()
                    )
                    size = (path / STATE).stat().st_size
                    self._newest = store.newest_time(self._folder)
            except TrainError as failure:
                error = failure
            finally:
                self._free.put(snapshot)
            written = WriteResult(step, pause_ms, (time.perf_counter() - began) * 1e3, path, size, error)
            if path and (self._joint is None or self._joint.leads):
                with suppress(OSError):  # the next prune tries again
                    store.prune(self._folder, self._keep_last, self._keep_best, verified=path)
        self._on_done(written)
        return written


def _lower_priority() -> None:
    """Let the training threads run first. Only Linux has thread priorities; elsewhere this would slow down training."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
