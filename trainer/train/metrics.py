"""Rank 0's record of the training: metrics.jsonl and TensorBoard; every rank's step times as events."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary

from ..run_dir import Lines, RankFolder
from .strategy import Step

_FLUSH_SECONDS = 10.0


class Meter:
    """Gathers steps and writes one line a log interval."""

    def __init__(self, folder: RankFolder, batch: int, samples: int, steps: int) -> None:
        self._folder, self._batch, self._samples, self._steps = folder, batch, samples, steps
        self._record = Record(folder.path) if folder.rank == 0 else None
        self._since = time.perf_counter()
        self._taken: list[Step] = []

    def resume(self) -> None:
        """Start the clock of the next interval now (after an evaluation or a checkpoint)."""
        self._since = time.perf_counter()

    def add(self, step: Step) -> None:
        """Take one step into the interval."""
        self._taken.append(step)

    def write(self, step: int, lr: float) -> None:
        """Close the interval at `step` (1-based: steps done)."""
        if not self._taken:
            return
        now, taken = time.perf_counter(), self._taken
        count, seconds = len(taken), now - self._since
        self._since, self._taken = now, []
        self._folder.event(
            "step",
            step=step,
            steps=self._steps,
            count=count,
            data_ms=_mean([s.data_ms for s in taken]),
            compute_ms=_mean([s.compute_ms for s in taken]),
            wait_ms=_mean([s.wait_ms for s in taken]),
            step_ms=round(seconds / count * 1e3, 3),
        )
        if self._record:
            self._record.add(
                step,
                epoch=round(step * self._batch / self._samples, 4),
                loss=taken[-1].loss,
                lr=lr,
                grad_norm=taken[-1].grad_norm,
                samples_per_s=round(count * self._batch / seconds, 1),
            )

    def evaluated(self, step: int, values: dict[str, float], samples: int) -> None:
        """Record an evaluation over `samples` held-out samples."""
        if self._record:
            self._folder.event("evaluated", step=step, samples=samples, values=values)
            self._record.evaluated(step, values, samples)

    def close(self) -> None:
        """Flush what TensorBoard still holds."""
        if self._record:
            self._record.close()


class Record:
    """metrics.jsonl, and the same as TensorBoard events."""

    def __init__(self, path: Path) -> None:
        self._lines, self._flush_at = Lines(path / "metrics.jsonl"), 0.0
        self._board: EventsWriter | None = None
        with suppress(OSError):
            (path / "tensorboard").mkdir(parents=True, exist_ok=True)
            self._board = EventsWriter(str(path / "tensorboard" / "events"))

    def add(self, step: int, **values: float) -> None:
        """One line of training metrics; a value that is not finite is left out of the line."""
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._lines.add(step=step, **finite)
        self._scalars("train", finite, step)

    def evaluated(self, step: int, values: dict[str, float], samples: int) -> None:
        """One line of held-out metrics."""
        self._lines.add(step=step, eval=values, samples=samples)
        self._scalars("held-out", values, step)

    def close(self) -> None:
        """Write what is still held."""
        board, self._board = self._board, None
        if board:
            with suppress(OSError):
                board.close()

    def _scalars(self, group: str, values: dict[str, Any], step: int) -> None:
        if not self._board:
            return
        # One event for all of them, and no thread: tensorboardX's own dies on a full disk, and then its queue fills up
        # and the training waits for it for ever.
        found = [Summary.Value(tag=f"{group}/{name}", simple_value=value) for name, value in values.items()]
        try:
            self._board.write_event(Event(wall_time=time.time(), step=step, summary=Summary(value=found)))
            if time.monotonic() >= self._flush_at:
                self._board.flush()
                self._flush_at = time.monotonic() + _FLUSH_SECONDS
        except OSError as fault:
            print(f"no more TensorBoard events: {fault}")
            self.close()


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 3)
