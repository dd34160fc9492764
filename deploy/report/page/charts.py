"""One chart of any series: what page.js draws, and a plain drawing where no script runs. run.py says of what.

Flow: series -> `draw` -> templates/chart.html. The plain drawing is a line a series, with the ends of both axes. It
stretches to its frame (its strokes do not). Pure.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

Point = tuple[float, float]
# Of several lines in one chart: classes of page.css.
STYLES = ("line", "other", "third", "fourth")
COLUMNS = 250
SIDE = 1000  # of the drawing, in chart.html and page.js as well


@dataclass(frozen=True)
class Series:
    """Points in x order. `style` is a class of page.css: line, faint, mean or dots. `letter`: stands at its end."""

    name: str
    points: list[Point]
    style: str = "line"
    letter: str = ""


@dataclass(frozen=True)
class Chart:
    """What one figure shows. `zero` and `top` fix the ends of the vertical axis. `smooth`: a mean over it, if long.

    `log`: on a logarithmic axis, if the values are far apart. `steps` is the range of the horizontal axis where charts
    are to be compared; else it is that of the points. `axis` says what its values are.
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


# What chart.html writes: the chart, also as JSON, the ends of its axes, and its plain drawing.
Drawing = dict[str, Any]
Ends = tuple[float, float]


def draw(chart: Chart) -> Drawing:
    """The drawing of a chart; empty where no series has a point."""
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
        "data": json.dumps(shown, default=vars, separators=(",", ":")),
        "across": across,
        "up": up,
        "paths": [(_path(each, across, up), each.style) for each in series],
        "summary": f"{chart.title} over {over}: {'; '.join(courses)} {chart.unit}".rstrip(),
    }


def _ends(values: Sequence[float]) -> Ends:
    """The least and the most, which are never the same."""
    low, high = min(values), max(values)
    return (low if low < high else low - (abs(low) / 10 or 1.0)), high


def _path(series: Series, across: Ends, up: Ends) -> str:
    """A line from point to point; of dots, a line of no length at each, whose ends are round."""
    x_scale, y_scale = (SIDE / (high - low) for low, high in (across, up))
    corners = [f"{(x - across[0]) * x_scale:.0f} {(up[1] - y) * y_scale:.0f}" for x, y in series.points]
    return f"M{('h.01M' if series.style == 'dots' else 'L').join(corners)}h.01"


def _short(value: float, digits: int) -> float:
    """A whole number, such as a step, as it is."""
    return int(value) if value % 1 == 0 and abs(value) <= 1e15 else float(f"{value:.{digits}g}")


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
    points_left = []
    for first, end in pairwise(cuts):
        cell = points[first:end]
        if cell:
            points_left += sorted({cell[0], min(cell, key=itemgetter(1)), max(cell, key=itemgetter(1)), cell[-1]})
    return points_left
