"""The averages of a log interval: rank 0's metrics, and every rank's step times as events."""

from __future__ import annotations

import time

from muster.metrics import Metrics

from ..run_dir import RankFolder
from .step import Step


class Meter:
    """Collects steps and writes one line for each log interval."""

    def __init__(self, folder: RankFolder, batch: int, samples: int, steps: int) -> None:
        self._folder, self._batch, self._samples, self._steps = folder, batch, samples, steps
        self._metrics = Metrics(folder.path, folder.metrics) if folder.rank == 0 else None
        self._since = time.perf_counter()
        self._steps_since: list[Step] = []

    def resume(self) -> None:
        """Start timing the next interval now (after an evaluation or a checkpoint)."""
        self._since = time.perf_counter()

    def add(self, step: Step) -> None:
        """Add one step to the interval."""
        self._steps_since.append(step)

    def write(self, step: int, lr: float) -> None:
        """Close the interval at `step`, the number of steps done, and write its averages."""
        if not self._steps_since:
            return
        now, steps = time.perf_counter(), self._steps_since
        count, seconds = len(steps), now - self._since
        self._since, self._steps_since = now, []
        self._folder.event(
            "step",
            step=step,
            steps=self._steps,
            count=count,
            data_ms=_mean([s.data_ms for s in steps]),
            compute_ms=_mean([s.compute_ms for s in steps]),
            wait_ms=_mean([s.wait_ms for s in steps]),
            step_ms=round(seconds / count * 1e3, 3),
        )
        if self._metrics:
            self._metrics.add(
                step,
                epoch=round(step * self._batch / self._samples, 4),
                loss=steps[-1].loss,
                lr=lr,
                grad_norm=float(steps[-1].grad_norm),
                samples_per_s=round(count * self._batch / seconds, 1),
            )

    def evaluated(self, step: int, values: dict[str, float], samples: int) -> None:
        """Record an evaluation over `samples` held-out samples."""
        if self._metrics:
            self._folder.event("evaluated", step=step, samples=samples, values=values)
            self._metrics.evaluated(step, values, samples)

    def close(self) -> None:
        """Write the events that are still in TensorBoard's writer, and close it."""
        if self._metrics:
            self._metrics.close()


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 3)
