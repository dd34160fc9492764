"""One chart of any series: the data that page.js draws, and a plain drawing for browsers that run no scripts.

Flow: series (from run.py and others) -> `draw` -> templates/chart.html. The plain drawing has one line for each series,
and the ends of both axes. It stretches to its frame (its strokes do not). Pure.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

from ...core.printable import visible_values

Point = tuple[float, float]
# The styles of several lines in one chart: classes in page.css.
STYLES = ("line", "other", "third", "fourth")
COLUMNS = 250
SIDE = 1000  # the width and height of the drawing, also in chart.html and page.js


@dataclass(frozen=True)
class Series:
    """Points in x order. `style` is a class in page.css: line, faint, mean or dots. `letter`: a label at the end."""

    name: str
    points: list[Point]
    style: str = "line"
    letter: str = ""


@dataclass(frozen=True)
class Chart:
    """What one figure shows. `zero` and `top` fix the ends of the vertical axis. `smooth`: add a mean, if it is long.

    `log`: use a logarithmic axis, if the values are far apart. `steps`: the range of the horizontal axis, for charts to
    be compared; without it, the range of the points. `axis`: what the values on the horizontal axis are.
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


# The values for chart.html: the chart, also as JSON, the ends of its axes, and its plain drawing.
Drawing = dict[str, Any]
Ends = tuple[float, float]


def draw(chart: Chart) -> Drawing:
    """The drawing of a chart; empty if no series has a point."""
    series = [
        replace(each, points=[(_short(x, 7), _short(y, 4)) for x, y in thin(each.points)])
        for each in chart.series
        if each.points
    ]
    if not series:
        return {}
    xs, ys = ([point[axis] for each in series for point in each.points] for axis in (0, 1))
    across, up = _ends(chart.steps or xs), _ends([*ys, *[0.0] * chart.zero])
    shown = replace(chart, series=series, steps=across)
    over = "steps" if chart.axis == "step" else "time"
    courses = [f"{each.name} from {each.points[0][1]:.4g} to {each.points[-1][1]:.4g}" for each in series]
    return {
        "chart": shown,
        "data": json.dumps(shown, default=lambda each: visible_values(vars(each)), separators=(",", ":")),
        "across": across,
        "up": up,
        "paths": [(_path(each, across, up), each.style) for each in series],
        "summary": f"{chart.title} over {over}: {'; '.join(courses)} {chart.unit}".rstrip(),
    }


def _ends(values: Sequence[float]) -> Ends:
    """The lowest and the highest value; the lowest is moved down if both are the same."""
    low, high = min(values), max(values)
    return (low if low < high else low - (abs(low) / 10 or 1.0)), high


def _path(series: Series, across: Ends, up: Ends) -> str:
    """An SVG path: a line from point to point; for dots, a line of no length at each point, with round ends."""
    x_scale, y_scale = (SIDE / (high - low) for low, high in (across, up))
    corners = [f"{(x - across[0]) * x_scale:.0f} {(up[1] - y) * y_scale:.0f}" for x, y in series.points]
    return f"M{('h.01M' if series.style == 'dots' else 'L').join(corners)}h.01"


def _short(value: float, digits: int) -> float:
    """A value rounded to `digits` significant digits; a whole number, such as a step, unchanged."""
    return int(value) if value % 1 == 0 and abs(value) <= 1e15 else float(f"{value:.{digits}g}")


def thin(points: list[Point], columns: int = COLUMNS) -> list[Point]:
    """At most 4 points in each column: the first, lowest, highest and last, so that no spike is lost.

    Points come in x order. Source: U. Jugel et al., "M4: a visualization-oriented time series data aggregation",
    VLDB 2014.
    """
    if len(points) <= 4 * columns:
        return points
    left, span = points[0][0], points[-1][0] - points[0][0]
    xs = [x for x, _ in points]
    cuts = [0, *(bisect_left(xs, left + span * column / columns) for column in range(1, columns)), len(points)]
    points_left = []
    for first, end in pairwise(cuts):
        cell = points[first:end]
        if cell:
            points_left += sorted({cell[0], min(cell, key=itemgetter(1)), max(cell, key=itemgetter(1)), cell[-1]})
    return points_left
