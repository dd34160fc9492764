"""Training metrics: one line for each log step, and the same as TensorBoard events. contract.md lists the fields."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .files import Lines

try:
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
# in a user's own image, tensorboardX may be installed with a protobuf version that it does not support
except Exception:
    EventsWriter = None

_FLUSH_SECONDS = 10.0
# The files that this process writes: the code that watches a script (trainer/node/rank) must not write to them, too.
OPENED = set[str]()


class Metrics:
    """`metrics.jsonl` in a folder, and the same as TensorBoard events if tensorboardX is installed.

    Only one process of a run may use this.
    """

    def __init__(self, path: Path, name: str = "metrics.jsonl") -> None:
        self._lines, self._flush_at = Lines(path / name), 0.0
        OPENED.add(os.path.realpath(path / name))
        self._board: Any = None
        with suppress(OSError):
            if EventsWriter:
                (path / "tensorboard").mkdir(parents=True, exist_ok=True)
                self._board = EventsWriter(str(path / "tensorboard" / "events"))

    def add(self, step: int, /, **values: float) -> None:
        """Write the training metrics after optimizer step `step`; values that are not finite are left out."""
        finite = {name: value for name, value in values.items() if math.isfinite(value) and name not in ("t", "step")}
        self._lines.add(step=step, **finite)
        self._scalars("train", finite, step)

    def evaluated(self, step: int, values: dict[str, float], samples: int) -> None:
        """Write the metrics of `samples` held-out samples after optimizer step `step`."""
        self._lines.add(step=step, eval=values, samples=samples)
        self._scalars("held-out", values, step)

    def flush(self) -> None:
        """Write the TensorBoard events that are still in memory."""
        if self._board:
            with suppress(OSError):
                self._board.flush()

    def close(self) -> None:
        """Write the TensorBoard events that are still in memory. Later calls of `add` write no more events."""
        board, self._board = self._board, None
        if board:
            with suppress(OSError):
                board.close()

    def _scalars(self, group: str, values: dict[str, Any], step: int) -> None:
        if not self._board:
            return
        # One event for all values, and no writer thread: tensorboardX's own thread dies on a full disk; then its queue
        # fills up and training waits forever.
        scalars = [Summary.Value(tag=f"{group}/{name}", simple_value=value) for name, value in values.items()]
        try:
            self._board.write_event(Event(wall_time=time.time(), step=step, summary=Summary(value=scalars)))
            if time.monotonic() >= self._flush_at:
                self._board.flush()
                self._flush_at = time.monotonic() + _FLUSH_SECONDS
        except OSError as fault:
            print(f"cannot write TensorBoard events, so there will be no more of them: {fault}")
            self.close()
