"""Axes and thinning: round ticks, positions between 0 and 1, and a bounded number of points. Pure.

Flow: series of the run -> here -> charts.py draws them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import itemgetter

Point = tuple[float, float]
COLUMNS = 250


@dataclass(frozen=True)
class Axis:
    """A range with its ticks and their labels; `at` places a value, 0 at `low` and 1 at `high`."""

    low: float
    high: float
    ticks: list[float]
    labels: list[str]
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value lies on the axis; values outside the range are held at its ends."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return min(1.0, max(0.0, (math.log(max(value, self.low)) - low) / (high - low)))
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def nice_step(span: float, wanted: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that cuts `span` into about `wanted` parts.

    Source: P. Heckbert, "Nice numbers for graph labels", Graphics Gems, 1990.
    """
    raw = span / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * 0.999)


def linear_axis(low: float, high: float, wanted: int = 5, widen: bool = True) -> Axis:
    """An axis that holds low..high; `widen` moves its ends to round ticks, else only the ticks inside are kept."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        room = abs(high) * 0.1 or 1.0
        low, high = low - (room if low else 0.0), high + room
    step = nice_step(high - low, wanted)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if not widen:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = [index * step for index in range(first, last + 1)]
    ends = (ticks[0], ticks[-1]) if widen else (low, high)
    return Axis(*ends, ticks, tick_labels(ticks, step))


def log_axis(low: float, high: float) -> Axis:
    """A logarithmic axis for positive values; ticks at 1, 2, 5 times powers of ten, fewer for many decades."""
    decades = math.log10(high / low)
    factors = (1, 2, 5) if decades < 2 else (1, 3) if decades < 3.5 else (1,)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    every = max(1, math.ceil(decades / 6)) if factors == (1,) else 1
    marks = [factor * 10.0**power for power in powers if power % every == 0 for factor in factors]
    inside = [mark for mark in marks if low <= mark * 1.0001 and mark <= high * 1.0001]
    return Axis(low / 1.06, high * 1.06, inside, [_plain(mark) for mark in inside], log=True)


def tick_labels(ticks: list[float], step: float) -> list[str]:
    """Labels with the same number of decimals each; powers of ten where decimals would grow long."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if largest and (largest < 1e-3 or largest >= 1e7):
        return ["0" if abs(tick) < step / 2 else _plain(float(f"{tick:.6g}")) for tick in ticks]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{tick if abs(tick) > step / 2 else 0.0:,.{decimals}f}" for tick in ticks]


def _plain(value: float) -> str:
    if 1e-3 <= value < 1e6:
        return f"{value:,.10g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def thin(points: list[Point], columns: int = COLUMNS) -> list[Point]:
    """At most 4 points a column: the first, lowest, highest and last of each, so that no spike is lost.

    Points come in x order. Source: U. Jugel et al., "M4: a visualization-oriented time series data aggregation",
    VLDB 2014.
    """
    if len(points) <= 4 * columns:
        return points
    left, span = points[0][0], points[-1][0] - points[0][0]
    xs = [x for x, _ in points]
    cuts = [0, *(bisect_left(xs, left + span * column / columns) for column in range(1, columns)), len(points)]
    kept: list[Point] = []
    for first, end in pairwise(cuts):
        cell = points[first:end]
        if cell:
            kept += sorted({cell[0], min(cell, key=itemgetter(1)), max(cell, key=itemgetter(1)), cell[-1]})
    return kept


def running_mean(points: list[Point], window: int) -> list[Point]:
    """The mean of a point and those up to `window // 2` to either side of it, at a bounded number of points."""
    half, every = window // 2, max(1, len(points) // (4 * COLUMNS))
    sums = [0.0, *accumulate(y for _, y in points)]
    places = [*range(0, len(points) - 1, every), len(points) - 1]
    spans = [(i, max(0, i - half), min(len(points), i + half + 1)) for i in places]
    return [(points[i][0], (sums[end] - sums[first]) / (end - first)) for i, first, end in spans]
