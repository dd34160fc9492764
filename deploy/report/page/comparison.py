"""Two runs beside each other as one HTML page that needs nothing beside itself. Pure.

Flow: report/compare.py's Comparison -> charts with both curves, tables -> templates/comparison.html.
"""

from __future__ import annotations

from ..compare import Comparison, Curve
from . import render
from .charts import Chart, Drawing, Point, Series, draw, running_mean

SMOOTH_FROM = 40


def build(comparison: Comparison) -> str:
    """The page."""
    return render.page(
        "comparison.html",
        " and ".join(comparison.names),
        ["page.css", "comparison.css"],
        "page.js",
        comparison=comparison,
        charts=[_chart(curve, comparison.names) for curve in comparison.curves],
    )


def _chart(curve: Curve, names: tuple[str, str]) -> Drawing:
    first, second = map(_smoothed, (curve.first, curve.second))
    series = [Series(names[0], first, "line"), Series(names[1], second, "other")]
    smooth = max(len(curve.first), len(curve.second)) >= SMOOTH_FROM
    note = ", ".join(filter(None, [curve.unit, "running mean" if smooth else ""]))
    title = curve.name.capitalize()
    return draw(
        Chart(title, curve.unit, series, note=note, log=curve.name == "loss", zero=curve.name != "loss", size="large")
    )


def _smoothed(points: list[Point]) -> list[Point]:
    return running_mean(points, len(points) // 20) if len(points) >= SMOOTH_FROM else points
