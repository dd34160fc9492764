"""Draw one chart of any series: paths of an inline SVG, ticks, and labels beside it. Pure. run.py says of what.

Flow: series -> `draw` -> templates/chart.html. The drawing stretches to its frame (its strokes do not), so the same
page fits a wide screen and a phone. A chart also has its points as JSON, for page.js.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

Point = tuple[float, float]
COLUMNS = 250
SIDE = 1000  # of the drawing, in chart.html as well
LOG_FROM = 40
LEAST = 1e-100  # the quotient of smaller numbers and others is no finite float
LABELLED_MARKS = 4
CROWDED = 24
SMOOTH_FROM = 40
SMOOTHED = 5  # percent of the points that a running mean takes


@dataclass(frozen=True)
class Series:
    """Points in x order. `style` is a class of page.css: line, faint with a mean over it, or dots.

    `derived`: page.js makes it itself, of the others.
    """

    name: str
    points: list[Point]
    style: str = "line"
    derived: bool = False


@dataclass(frozen=True)
class Chart:
    """What one figure shows. `top` fixes the upper end.

    `steps` is the range of the horizontal axis where charts are to be compared; else it is that of the points. `axis`
    says what its values are.
    """

    title: str
    unit: str
    series: list[Series]
    note: str = ""
    marks: list[tuple[float, str]] = field(default_factory=list)
    log: bool = False
    zero: bool = False
    top: float | None = None
    steps: tuple[float, float] | None = None
    size: str = "small"
    legend: bool = True
    axis: str = "step"


# What chart.html writes: lines are positions as CSS lengths, shapes are a path and its class of page.css.
Drawing = dict[str, Any]


def draw(chart: Chart) -> Drawing:
    """The drawing of a chart; empty where no series has a point."""
    series = [replace(s, points=thin(s.points)) for s in chart.series if s.points]
    if not series:
        return {}
    xs = [x for s in series for x, _ in s.points]
    x_axis = linear_axis(*(chart.steps or (min(xs), max(xs))), 4 if chart.size == "small" else 8, widen=False)
    y_axis = _y_axis(chart, [y for s in series for _, y in s.points])
    return {
        "title": chart.title,
        "unit": chart.note or chart.unit,
        "size": chart.size,
        "legend": series if chart.legend and len(series) > 1 else [],
        "shapes": [shape for s in series for shape in _shapes(s, x_axis, y_axis)],
        "summary": _summary(chart, series),
        "rules": [f"{SIDE - y_axis.at(tick) * SIDE:.1f}" for tick in y_axis.ticks],
        "labels": [*_labels(y_axis, "y", "bottom"), *_labels(x_axis, "x", "left")],
        "marks": _marks(chart.marks, x_axis, chart.size == "large"),
        "range": f"{x_axis.low:.16g},{x_axis.high:.16g}",
        "readout": _readout(series),
        "log": y_axis.log,
        "smooth": SMOOTHED if any(s.derived for s in series) else 0,
        "readout_unit": chart.unit,
        "axis": chart.axis,
    }


def _y_axis(chart: Chart, values: list[float]) -> Axis:
    low, high = min(values), max(values)
    if chart.log and low > LEAST and high / low >= LOG_FROM:
        return log_axis(low, high)
    if chart.zero or 0 <= low < high / 3:
        low = 0.0
    return linear_axis(low, max(high if chart.top is None else chart.top, low), 4)


def _shapes(series: Series, x_axis: Axis, y_axis: Axis) -> list[tuple[str, str]]:
    """A series as one path; dots as two, with the thread between them first."""
    corners = [f"{x_axis.at(x) * SIDE:.0f} {SIDE - y_axis.at(y) * SIDE:.0f}" for x, y in series.points]
    line = "M" + "L".join(corners)
    if series.style == "dots" or len(series.points) == 1:
        many = " many" if len(series.points) > CROWDED else ""
        # A line of no length with round ends is a dot that no stretching makes oval.
        dots = "".join(f"M{corner}h.01" for corner in corners)
        return [(line, "thread"), (dots, f"dots{many}")]
    return [(line, series.style)]


def _labels(axis: Axis, name: str, side: str) -> list[tuple[str, str, str, str]]:
    return [(name, side, f"{axis.at(tick):.2%}", label) for tick, label in zip(axis.ticks, axis.labels, strict=True)]


def _marks(marks: list[tuple[float, str]], x_axis: Axis, labelled: bool) -> list[tuple[str, str, str]]:
    """Upright lines, by position, class and label; where there is room, labelled while there are few."""
    positions = [(x_axis.at(x), label if labelled and len(marks) <= LABELLED_MARKS else "") for x, label in marks]
    return [(f"{at:.2%}", "mark" if at < 0.75 else "mark left", label) for at, label in positions]


def _summary(chart: Chart, series: list[Series]) -> str:
    ends = [
        f"{s.name} from {s.points[0][1]:.4g} to {s.points[-1][1]:.4g}{chart.unit and ' ' + chart.unit}" for s in series
    ]
    over = "steps" if chart.axis == "step" else "time"
    return f"{chart.title} over {over}: " + "; ".join(ends)


def _readout(series: list[Series]) -> str:
    """The series for page.js, which draws a running mean itself, over a line that is no longer faint."""
    style = {"faint": "line"} if any(s.derived for s in series) else {}
    rows = [
        {
            "name": s.name,
            "style": style.get(s.style, s.style),
            "points": [[_short(x, 7), _short(y, 4)] for x, y in s.points],
        }
        for s in series
        if not s.derived
    ]
    return json.dumps(rows, separators=(",", ":"))


def _short(value: float, digits: int) -> float:
    """A whole number, such as a step, as it is."""
    return int(value) if value % 1 == 0 and abs(value) <= 1e15 else float(f"{value:.{digits}g}")


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
    if high - low <= max(LEAST, 1e-9 * max(abs(low), abs(high))):
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
    points_left: list[Point] = []
    for first, end in pairwise(cuts):
        cell = points[first:end]
        if cell:
            points_left += sorted({cell[0], min(cell, key=itemgetter(1)), max(cell, key=itemgetter(1)), cell[-1]})
    return points_left


def running_mean(points: list[Point]) -> list[Point]:
    """The mean of each point and its neighbours, SMOOTHED percent of all."""
    half = len(points) * SMOOTHED // 200
    sums = [0.0, *accumulate(y for _, y in points)]
    spans = [(max(0, at - half), min(len(points), at + half + 1)) for at in range(len(points))]
    return [(x, (sums[end] - sums[first]) / (end - first)) for (x, _), (first, end) in zip(points, spans, strict=True)]
