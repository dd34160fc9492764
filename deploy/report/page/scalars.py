"""Charts of the numbers that a script wrote into its own files, from scalars/<node>.jsonl. Pure.

Like TensorBoard, this page treats all event files in one folder as one series. Numbers with the same name from several
folders or nodes share a chart. A name with only one number has no chart; the page shows the number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...core import text as words
from .charts import STYLES, Chart, Point, Series, draw
from .data import Fields, number

CHARTS, FACTS, FILES = 24, 40, 40
_CHECKPOINT = re.compile(r"checkpoint-\d+/(?=trainer_state\.json$)")
_EVENTS = re.compile(r"/?events\.out\.tfevents\.[^/]*$")

Values = dict[str, dict[float, float]]
Courses = dict[str, Values]


def section(scalars: dict[str, list[Fields]]) -> Fields:
    """The charts, the single numbers, how many of both are left out, and the files that they came from."""
    courses = _courses(scalars)
    tags = dict.fromkeys(tag for values in courses.values() for tag in values)
    charts, facts = list[Chart](), list[tuple[str, str]]()
    for tag in sorted(tags, key=lambda tag: "loss" not in tag.lower()):
        series = [(label, sorted(values[tag].items())) for label, values in courses.items() if values.get(tag)]
        if any(len(points) > 1 for _, points in series):
            charts.append(_chart(tag, series, several=len(courses) > 1))
        else:
            facts += [(tag, _fact(label, points, len(courses) > 1)) for label, points in series]
    left_out = max(0, len(charts) - CHARTS) + max(0, len(facts) - FACTS)
    files = dict.fromkeys(_CHECKPOINT.sub("checkpoint-*/", row["file"]) for rows in scalars.values() for row in rows)
    return {
        "charts": [draw(chart) for chart in charts[:CHARTS]],
        "facts": facts[:FACTS],
        "left_out": left_out,
        "files": list(files)[:FILES],
    }


def _courses(scalars: dict[str, list[Fields]]) -> Courses:
    """By label, the last value of each name for each step, without series that are copies of another host's."""
    sources: dict[str, Courses] = {}
    for node, rows in sorted(scalars.items()):
        for row in rows:
            values = sources.setdefault(_source(row["file"]), {}).setdefault(node, {})
            for tag, points in row["tags"].items():
                known = ((step, number(value)) for step, value in points)
                values.setdefault(tag, {}).update({step: value for step, value in known if value is not None})
    courses = {}
    for source, nodes in sources.items():
        own = _without_copies(nodes)
        courses.update({source if len(own) == 1 else f"{source} · {node}": values for node, values in own.items()})
    return courses


def _source(path: str) -> str:
    """The name of a series: its file, or for TensorBoard's event files their folder, without the leading `work/`."""
    return _EVENTS.sub("", _CHECKPOINT.sub("", path)).removeprefix("work/")


def _without_copies(nodes: Courses) -> Courses:
    own: Courses = {}
    for node, values in sorted(nodes.items(), key=lambda item: -sum(map(len, item[1].values()))):
        if not any(
            all(points.items() <= other.get(tag, {}).items() for tag, points in values.items())
            for other in own.values()
        ):
            own[node] = values
    return dict(sorted(own.items()))


def _chart(tag: str, series: list[tuple[str, list[Point]]], several: bool) -> Chart:
    shown = series[: len(STYLES)]
    drawn = [Series(label, points, style) for (label, points), style in zip(shown, STYLES, strict=False)]
    more = f"and {len(series) - len(shown)} more" if len(series) > len(shown) else ""
    return Chart(tag, "", drawn, note=series[0][0] if several and len(series) == 1 else more, log="loss" in tag.lower())


def _fact(label: str, points: Iterable[Point], several: bool) -> str:
    value = ", ".join(words.figure(value) for _, value in points)
    return f"{value} ({label})" if several else value
