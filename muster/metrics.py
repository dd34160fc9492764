"""Training metrics, a line a log step, and the same for TensorBoard. The line's fields are in docs/contract.md."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary

from .files import Lines

_FLUSH_SECONDS = 10.0


class Metrics:
    """`metrics.jsonl` below a run folder, and the same as TensorBoard events. One process of a run writes them."""

    def __init__(self, path: Path) -> None:
        self._lines, self._flush_at = Lines(path / "metrics.jsonl"), 0.0
        self._board: EventsWriter | None = None
        with suppress(OSError):
            (path / "tensorboard").mkdir(parents=True, exist_ok=True)
            self._board = EventsWriter(str(path / "tensorboard" / "events"))

    def add(self, step: int, **values: float) -> None:
        """One line of training metrics after optimizer step `step`; a value that is not finite is left out."""
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._lines.add(step=step, **finite)
        self._scalars("train", finite, step)

    def evaluated(self, step: int, values: dict[str, float], samples: int) -> None:
        """One line of metrics over `samples` held-out samples after optimizer step `step`."""
        self._lines.add(step=step, eval=values, samples=samples)
        self._scalars("held-out", values, step)

    def close(self) -> None:
        """Write what TensorBoard still holds."""
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
