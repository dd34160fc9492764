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
# Of several lines in one chart: classes of page.css.
STYLES = ("line", "other", "third", "fourth")
COLUMNS = 250
SIDE = 1000  # of the drawing, in chart.html as well
LOG_FROM = 40
LEAST = 1e-100  # the quotient of smaller numbers and others is no finite float
LABELLED_MARKS = 4
CROWDED = 24
ABOUT_TICKS = 4
SMOOTH_FROM = 40
SMOOTHED = 5  # percent of the points that a running mean takes


@dataclass(frozen=True)
class Series:
    """Points in x order. `style` is a class of page.css: line, faint with a mean over it, or dots.

    `letter`: what stands at its end.
    """

    name: str
    points: list[Point]
    style: str = "line"
    letter: str = ""


@dataclass(frozen=True)
class Chart:
    """What one figure shows. `top` fixes the upper end. `smooth`: the first series, if it is long, gets a running mean.

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
    smooth: bool = False
    axis: str = "step"


# What chart.html writes: lines are positions as CSS lengths, shapes are a path and its class of page.css.
Drawing = dict[str, Any]


def draw(chart: Chart) -> Drawing:
    """The drawing of a chart; empty where no series has a point."""
    known = [s for s in chart.series if s.points]
    if not known:
        return {}
    smooth = chart.smooth and known[0].style == "line" and len(known[0].points) >= SMOOTH_FROM
    series = [replace(s, points=thin(s.points)) for s in (_smoothed(*known) if smooth else known)]
    xs = [x for s in series for x, _ in s.points]
    x_axis = axis(*(chart.steps or (min(xs), max(xs))), ABOUT_TICKS if chart.size == "small" else 2 * ABOUT_TICKS)
    y_axis = _y_axis(chart, [y for s in series for _, y in s.points])
    return {
        "title": chart.title,
        "unit": (chart.note or chart.unit) + ", running mean" * (smooth and not chart.legend),
        "size": chart.size,
        "legend": series if chart.legend and len(series) > 1 else [],
        "shapes": [shape for s in series for shape in _shapes(s, x_axis, y_axis)],
        "summary": _summary(chart, series),
        "rules": [f"{SIDE - y_axis.at(tick) * SIDE:.1f}" for tick in y_axis.ticks],
        "labels": [*_labels(y_axis, "y", "bottom"), *_labels(x_axis, "x", "left")],
        "letters": [_end(s, x_axis, y_axis) for s in series if s.letter],
        "marks": _marks(chart.marks, x_axis, chart.size == "large"),
        "range": f"{x_axis.low:.16g},{x_axis.high:.16g}",
        "readout": _readout(known),
        "log": y_axis.log,
        "smooth": SMOOTHED if smooth else 0,
        "readout_unit": chart.unit,
        "axis": chart.axis,
    }


def _smoothed(first: Series, *others: Series) -> list[Series]:
    mean = Series("running mean", running_mean(first.points), "mean")
    return [replace(first, style="faint"), mean, *others]


def _y_axis(chart: Chart, values: list[float]) -> Axis:
    """An axis from 0 where the lowest value is near that, else with some room; as page.js draws it again."""
    low, high = min(values), max(values)
    if chart.log and low > LEAST and high / low >= LOG_FROM:
        return axis(low / 1.06, high * 1.06, ABOUT_TICKS, log=True)
    room = (0.1 * abs(high) or 1.0) if _is_flat(low, high) else 0.05 * (high - low)
    low = 0.0 if chart.zero or 0 <= low < high / 3 else low - room
    return axis(low, high + room if chart.top is None else max(chart.top, high), ABOUT_TICKS)


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
    return [(name, side, f"{axis.at(tick):.2%}", tick_label(tick)) for tick in axis.ticks]


def _marks(marks: list[tuple[float, str]], x_axis: Axis, labelled: bool) -> list[tuple[str, str, str]]:
    """Upright lines, by position, class and label; where there is room, labelled while there are few."""
    positions = [(x_axis.at(x), label if labelled and len(marks) <= LABELLED_MARKS else "") for x, label in marks]
    return [(f"{at:.2%}", "mark" if at < 0.75 else "mark left", label) for at, label in positions]


def _end(series: Series, x_axis: Axis, y_axis: Axis) -> tuple[str, str, str]:
    """Where a series ends, and its letter."""
    x, y = series.points[-1]
    return f"{min(0.98, x_axis.at(x)):.2%}", f"{min(0.95, y_axis.at(y)):.2%}", series.letter


def _summary(chart: Chart, series: list[Series]) -> str:
    ends = [
        f"{s.name} from {s.points[0][1]:.4g} to {s.points[-1][1]:.4g}{chart.unit and ' ' + chart.unit}" for s in series
    ]
    over = "steps" if chart.axis == "step" else "time"
    return f"{chart.title} over {over}: " + "; ".join(ends)


def _readout(series: list[Series]) -> str:
    """The series for page.js, which smooths them itself."""
    rows = [
        {
            "name": s.name,
            "style": s.style,
            "letter": s.letter,
            "points": [[_short(x, 7), _short(y, 4)] for x, y in thin(s.points)],
        }
        for s in series
    ]
    return json.dumps(rows, separators=(",", ":"))


def _short(value: float, digits: int) -> float:
    """A whole number, such as a step, as it is."""
    return int(value) if value % 1 == 0 and abs(value) <= 1e15 else float(f"{value:.{digits}g}")


@dataclass(frozen=True)
class Axis:
    """A range with the ticks in it; `at` places a value, 0 at `low` and 1 at `high`."""

    low: float
    high: float
    ticks: list[float]
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value lies on the axis; values outside the range are held at its ends."""
        held = min(self.high, max(self.low, value))
        if self.log:
            return math.log(held / self.low) / math.log(self.high / self.low)
        return (held - self.low) / (self.high - self.low)


def axis(low: float, high: float, wanted: int, log: bool = False) -> Axis:
    """An axis over a range, with about so many ticks."""
    if _is_flat(low, high):
        room = 0.1 * abs(high)
        low, high = low - room, high + (room or 1.0)
    return Axis(low, high, (log and _log_ticks(low, high)) or _ticks(low, high, wanted), log)


def _is_flat(low: float, high: float) -> bool:
    return high - low <= max(LEAST, 1e-9 * max(abs(low), abs(high)))


def _ticks(low: float, high: float, wanted: int) -> list[float]:
    """Round ticks within a range: 1, 2 or 5 times a power of ten apart.

    Source: P. Heckbert, "Nice numbers for graph labels", Graphics Gems, 1990.
    """
    apart = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(apart))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= apart * 0.999)
    return [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Ticks at powers of ten, and at some between where these are few; none where even so there are not two."""
    factors = (1, 2, 5) if high < 100 * low else (1, 3) if high < 3000 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = math.ceil(math.log10(high / low) / 8)
    inside = [tick for power in powers[::every] for factor in factors if low <= (tick := factor * 10.0**power) <= high]
    return inside if len(inside) > 1 else []


def tick_label(value: float) -> str:
    """A tick as short as it is round; with an exponent where it would be long."""
    if not value or 1e-4 <= abs(value) < 1e7:
        return f"{value:,.10g}"
    mantissa, exponent = f"{value:.3e}".split("e")
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
