"""How a rank saves the last finished step of a run that broke off.

run.py and checkpoints.py decide when, and which rank. Each disk that receives checkpoints needs this one once: the
ranks that see the disk take turns, and the first one writes it. No rank knows which other ranks are alive, so a rank
holds a lock while it writes a checkpoint; a kill releases the lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.checkpoint import BackgroundWriter, WriteResult, store
from muster.checkpoint.manifest import STATE, manifest_or_none
from muster.checkpoint.snapshot import Snapshot
from muster.errors import TrainError

from ..saving_lock import locked

# torchrun kills a rank 30 s after its SIGTERM.
_SECONDS, _POLL_SECONDS = 20.0, 0.003
_TICK = 1e-5
Take = Callable[[], tuple[dict[str, Any], dict[str, Any]]]


@dataclass(frozen=True)
class Mark:
    """A point in time that all ranks know: a step, and what one host's clock showed at that step."""

    step: int = 0
    time: float = 0.0

    def at(self, step: int) -> float:
        """The time for the checkpoint of a later `step`: the same on all ranks, and later for a later step.

        Two ranks may have finished different steps, and their hosts' clocks differ. A step takes longer than a tick.
        """
        return self.time + (step - self.step) * _TICK


class Rescue:
    """Saves once, in its own thread: a disk that does not answer must not prevent the rank from ending."""

    def __init__(
        self,
        run_folder: Path,
        folder: Path,
        keep: int,
        writer: BackgroundWriter | None,
        report: Callable[[WriteResult], None],
    ) -> None:
        self._run_folder, self._folder, self._keep = run_folder, folder, keep
        self._writer, self._report = writer, report
        self._ends_at, self._done = 0.0, False

    def save(self, step: int, created: float, take: Take) -> None:
        """Write the checkpoint of `step`, unless this disk has one that is as new. Returns after 20 s at the latest.

        `take` returns the state and the summary. A second call waits for the first one: a signal may arrive meanwhile,
        and its handler calls this in the same thread. So this waits without a lock, which that thread might already
        hold.
        """
        if not self._ends_at:
            self._ends_at = time.monotonic() + _SECONDS
            threading.Thread(target=self._save, args=(step, created, take), daemon=True, name="muster-rescue").start()
        while not self._done and time.monotonic() < self._ends_at:
            time.sleep(_POLL_SECONDS)

    def _save(self, step: int, created: float, take: Take) -> None:
        try:
            with suppress(TrainError):  # the writer's thread has already reported it
                if self._writer:
                    self._writer.wait()
            with locked(self._run_folder) as held:
                if held and self._newest() < created:
                    self._report(self._write(step, created, take))
        finally:
            self._done = True

    def _write(self, step: int, created: float, take: Take) -> WriteResult:
        began, path, size, error = time.perf_counter(), None, 0, None
        try:
            state, summary = take()
            copied = Snapshot().take(state)
            path = store.write(self._folder, step, copied, metric=None, summary=summary, created=created)
            size = (path / STATE).stat().st_size
            with suppress(OSError):  # the next prune tries again
                store.prune(self._folder, self._keep, True, verified=path)
        except TrainError as failure:
            error = failure
        return WriteResult(step, 0.0, (time.perf_counter() - began) * 1e3, path, size, error)

    def _newest(self) -> float:
        manifests = (manifest_or_none(path) for _, path in store.listed(self._folder))
        return max((manifest.created for manifest in manifests if manifest), default=0.0)
