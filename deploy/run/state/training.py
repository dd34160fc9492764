"""The progress of a training, updated with each event: losses, pace, checkpoints and evaluations. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeVar

from ..events import Event, changes_nodes, react

T = TypeVar("T")
_MOST_SCALARS, _MOST_POINTS = 300, 4096


class BoundedCurve(list[T]):
    """Points of a curve that may grow for weeks: at most _MOST_POINTS, at even distances, and the newest point."""

    def __init__(self) -> None:
        super().__init__()
        self._count, self._every = 0, 1

    def add_point(self, point: T) -> None:
        """Add the newest point; it replaces the one before if that was kept only as the newest."""
        self[-1 if self._count % self._every else len(self) :] = [point]
        self._count += 1
        if len(self) > _MOST_POINTS:
            del self[1::2]
            self._every *= 2


@dataclass
class Training:
    """The numbers of a training. `scalars`: for each name, the newest step and value in a script's files, and the file.

    `pace`: the last reports of rank 0, as time and step. `checkpoint`, `evaluated`: the last events of these kinds.
    """

    losses: BoundedCurve[tuple[int, float]] = field(default_factory=BoundedCurve)
    rates: BoundedCurve[float] = field(default_factory=BoundedCurve)
    pace: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=20))
    checkpoint: Event = field(default_factory=dict)
    evaluated: Event = field(default_factory=dict)
    scalars: dict[str, tuple[int, float, str]] = field(default_factory=dict)

    def apply(self, event: Event, starts_again: bool) -> None:
        """Apply an event. `starts_again`: it shows that all ranks start again."""
        if starts_again:
            self.pace.clear()
        react(self, event)

    def seconds_left(self, steps: int) -> float | None:
        """The time left until `steps` steps, at the pace of the last 20 reports; None before there are two."""
        if len(self.pace) < 2 or not steps:
            return None
        (t_first, first), (t_last, last) = self.pace[0], self.pace[-1]
        return (steps - last) * (t_last - t_first) / (last - first) if last > first else None

    def _on_members(self, event: Event) -> None:
        if changes_nodes(event):
            self.pace.clear()

    def _on_step(self, event: Event) -> None:
        if int(event["rank"]) == 0:
            self.pace.append((float(event["t"]), int(event["step"])))

    def _on_continues(self, event: Event) -> None:
        if int(event["rank"]) == 0 and event["known"]:
            self.losses[:] = [point for point in self.losses if point[0] <= int(event["step"])]
            self.pace.clear()
        elif event.get("another") and self.pace and self.pace[-1][0] < float(event["t"]):
            self.losses.clear()  # rank 0 is about to report the same
            self.pace.clear()

    def _on_metrics(self, event: Event) -> None:
        if "loss" in event:
            self.losses.add_point((int(event["step"]), float(event["loss"])))
        if event.get("samples_per_s"):
            self.rates.add_point(float(event["samples_per_s"]))

    def _on_checkpoint(self, event: Event) -> None:
        self.checkpoint = event

    def _on_evaluated(self, event: Event) -> None:
        self.evaluated = event

    def _on_scalars(self, event: Event) -> None:
        for tag, points in event["tags"].items():
            if points and (tag in self.scalars or len(self.scalars) < _MOST_SCALARS):
                self.scalars[tag] = points[-1][0], points[-1][1], event["file"]
