"""Draw one chart: an inline SVG for the lines, and labels beside it that keep their size at any width.

Flow: series -> `draw` -> a <figure>. The drawing stretches to its frame (its strokes do not), so the same page fits a
wide screen and a phone. The figure also contains the points as JSON, for page.js.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from .html import Html, join, tag
from .scale import Axis, Point, linear_axis, log_axis, thin

SIDE = 1000
LOG_FROM = 40
LABELLED_MARKS = 4
CROWDED = 24


@dataclass(frozen=True)
class Series:
    """Points in x order. `style` is a class of page.css: line, faint with a mean over it, dots, or an area's."""

    name: str
    points: list[Point]
    style: str = "line"


@dataclass(frozen=True)
class Chart:
    """What one figure shows. `scale` multiplies values for display (100 for percent); `top` fixes the upper end.

    `steps` is the range of the horizontal axis where charts are to be compared; else it is that of the points.
    """

    title: str
    unit: str
    series: list[Series]
    note: str = ""
    scale: float = 1.0
    marks: list[tuple[float, str]] = field(default_factory=list)
    log: bool = False
    stacked: bool = False
    zero: bool = False
    top: float | None = None
    steps: tuple[float, float] | None = None
    size: str = "small"
    legend: bool = True


def draw(chart: Chart) -> Html:
    """The figure of a chart; one that says so where no series has a point."""
    series = [
        Series(s.name, [(x, y * chart.scale) for x, y in thin(s.points)], s.style) for s in chart.series if s.points
    ]
    if not series:
        return tag(
            "figure",
            _caption(chart, []),
            tag("p", "Nothing was recorded.", class_="none"),
            class_=f"chart {chart.size}",
        )
    xs = [x for s in series for x, _ in s.points]
    first, last = chart.steps or (min(xs), max(xs))
    x_axis = linear_axis(first, last, 4 if chart.size == "small" else 8, widen=False)
    drawn = _stack(series) if chart.stacked else [(s, None) for s in series]
    y_axis = _y_axis(chart, [y for s, _ in drawn for _, y in s.points])
    shapes = [_shape(s, base, x_axis, y_axis) for s, base in drawn]
    picture = tag(
        "svg",
        tag("title", _summary(chart, series)),
        *[_rule(y_axis.at(tick)) for tick in y_axis.ticks],
        *shapes,
        viewBox=f"0 0 {SIDE} {SIDE}",
        preserveAspectRatio="none",
        role="img",
    )
    plot = tag(
        "div",
        picture,
        *_tick_labels(x_axis, y_axis),
        tag("span", "step", class_="axis"),
        *_marks(chart.marks, x_axis, chart.size == "large"),
        class_="plot",
        data_x=f"{x_axis.low:.10g},{x_axis.high:.10g}",
        data_unit=chart.unit,
        data_series=_readout(series),
    )
    return tag("figure", _caption(chart, series), plot, class_=f"chart {chart.size}")


def _y_axis(chart: Chart, values: list[float]) -> Axis:
    low, high = min(values), max(values)
    if chart.log and low > 0 and high / low >= LOG_FROM:
        return log_axis(low, high)
    if chart.zero or chart.stacked or 0 <= low < high / 3:
        low = 0.0
    high = chart.top if chart.top is not None else high
    if chart.scale == 100 and high <= 100:
        high = min(high, 99.999)
    return linear_axis(low, max(high, low), 4)


def _stack(series: list[Series]) -> list[tuple[Series, list[Point] | None]]:
    """Each series on the one before it, as areas. All have the same x."""
    base = [(x, 0.0) for x, _ in series[0].points]
    layers: list[tuple[Series, list[Point] | None]] = []
    for one in series:
        upper = [(x, y + below) for (x, y), (_, below) in zip(one.points, base, strict=True)]
        layers.append((Series(one.name, upper, one.style), base))
        base = upper
    return layers


def _place(points: list[Point], x_axis: Axis, y_axis: Axis) -> list[str]:
    return [f"{x_axis.at(x) * SIDE:.1f} {SIDE - y_axis.at(y) * SIDE:.1f}" for x, y in points]


def _shape(series: Series, base: list[Point] | None, x_axis: Axis, y_axis: Axis) -> Html:
    places = _place(series.points, x_axis, y_axis)
    if base is not None:
        places += reversed(_place(base, x_axis, y_axis))
    if series.style == "dots" or len(series.points) == 1:
        many = " many" if len(series.points) > CROWDED else ""
        joined = tag("path", d="M" + "L".join(places), class_="thread")
        # A line of no length with round ends is a dot that no stretching makes oval.
        return join([joined, tag("path", d="".join(f"M{place}h.01" for place in places), class_=f"dots{many}")])
    closed = "Z" if base is not None else ""
    return tag("path", d="M" + "L".join(places) + closed, class_=series.style)


def _rule(height: float) -> Html:
    y = f"{SIDE - height * SIDE:.1f}"
    return tag("path", d=f"M0 {y}H{SIDE}", class_="rule")


def _tick_labels(x_axis: Axis, y_axis: Axis) -> list[Html]:
    marks = [
        tag("span", label, class_="y", style=f"bottom:{y_axis.at(tick):.2%}")
        for tick, label in zip(y_axis.ticks, y_axis.labels, strict=True)
    ]
    return marks + [
        tag("span", label, class_="x", style=f"left:{x_axis.at(tick):.2%}")
        for tick, label in zip(x_axis.ticks, x_axis.labels, strict=True)
    ]


def _marks(marks: list[tuple[float, str]], x_axis: Axis, labelled: bool) -> list[Html]:
    """Upright dashed lines; where there is room, labelled while there are few."""
    drawn = []
    for x, label in marks:
        place = x_axis.at(x)
        side = "mark" if place < 0.75 else "mark left"
        text = tag("span", label) if labelled and len(marks) <= LABELLED_MARKS else Html("")
        drawn.append(tag("span", text, class_=side, style=f"left:{place:.2%}"))
    return drawn


def _caption(chart: Chart, series: list[Series]) -> Html:
    legend = chart.legend and len(series) > 1
    keys = [tag("span", tag("i", class_=f"key {s.style}"), s.name) for s in series] if legend else []
    unit = tag("span", chart.note or chart.unit, class_="unit")
    return tag("figcaption", tag("b", chart.title), unit, tag("span", *keys, class_="keys"), tag("output"))


def _summary(chart: Chart, series: list[Series]) -> str:
    ends = [
        f"{s.name} from {s.points[0][1]:.4g} to {s.points[-1][1]:.4g}{chart.unit and ' ' + chart.unit}" for s in series
    ]
    return f"{chart.title} over steps: " + "; ".join(ends)


def _readout(series: list[Series]) -> str:
    told = [s for s in series if s.style != "mean"]
    rows = [{"name": s.name, "points": [[_short(x), _short(y)] for x, y in s.points]} for s in told]
    return json.dumps(rows, separators=(",", ":"))


def _short(value: float) -> float | int:
    rounded = float(f"{value:.7g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else float(f"{value:.4g}")
