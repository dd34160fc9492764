"""The report of a run: one HTML page that needs no network and no JavaScript.

Flow: the run folder -> data.load -> head, charts, steps, timeline, tables -> report.html.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from ...run import own_files, record
from . import head, timeline
from . import steps as page_steps
from . import units as words
from .charts import Chart, Series, draw
from .data import Fields, Run, children, load, number
from .html import Html, document, join, tag
from .scale import Point, running_mean

HERE = Path(__file__).parent
ROWS = 200
LONGEST = 400
METRIC_CHARTS = 6
MARKS = 50
SMOOTH_FROM = 40
LISTED = (
    "record.json",
    "config.json",
    "environment.json",
    "outcome.json",
    "metrics.jsonl",
    "timeline.jsonl",
    "tensorboard/",
    "checkpoints/",
)


def build(run_dir: Path, own: Fields | None = None) -> str:
    """The page for a run folder. Never raises for what is missing, partial or torn there: the page says it instead.

    `own`: what this machine itself recorded of the run; the commands on the page are made of that alone.
    """
    run = load(run_dir, own)
    told = head.summary(run)
    body = [
        head.section(run, told),
        _notes(run.notes),
        _section("Training", _charts(run)),
        _section("Where each step’s time went", page_steps.section(run.times, run.nodes)),
        _section("What happened", timeline.section(run.events, told.start)),
        _section("Configuration", _table(run.config, "config.json")),
        _section("Environment", _table(run.environment, "environment.json")),
        _section("Files", _files(run_dir)),
    ]
    title = str(run.record.get("id") or run_dir.name)
    return document(title, body, (HERE / "page.css").read_text("utf-8"), (HERE / "page.js").read_text("utf-8"))


def _section(title: str, content: Html) -> Html:
    return tag("section", tag("h2", title), content)


def _notes(notes: list[str]) -> Html:
    if not notes:
        return Html("")
    shown = notes[:12] + ([f"and {len(notes) - 12} more"] if len(notes) > 12 else [])
    return tag("aside", tag("b", "Incomplete: "), "; ".join(shown), class_="notes")


def _column(rows: list[Fields], name: str) -> list[Point]:
    """A metric as points, without the lines that lack it or where it is not finite."""
    return [(row["step"], value) for row in rows if (value := number(row.get(name))) is not None]


def _held_out(run: Run, name: str) -> list[Point]:
    return [(row["step"], row["values"][name]) for row in run.evaluations if name in row["values"]]


def _charts(run: Run) -> Html:
    """The loss, large, and below it the held-out measures, learning rate and throughput, over the same steps."""
    names = list(dict.fromkeys(name for row in run.evaluations for name in row["values"] if name != "loss"))
    names.sort(key=lambda name: name != "accuracy")
    charts = [_measure(name, _held_out(run, name)) for name in names[:METRIC_CHARTS]]
    charts.append(Chart("Learning rate", "", [Series("learning rate", _column(run.metrics, "lr"))], zero=True))
    speed = _smoothed("samples/s", _column(run.metrics, "samples_per_s"))
    note = "samples/s, running mean" if len(speed) > 1 else "samples/s"
    charts.append(Chart("Throughput", "samples/s", speed, note=note, zero=True, legend=False))
    loss = [*_smoothed("training", _column(run.metrics, "loss")), Series("held-out", _held_out(run, "loss"), "dots")]
    main = Chart("Loss", "", loss, note="mean over the global batch", log=True, size="large")
    large, *small = _aligned([main, *charts], run)
    return join([draw(large), tag("div", *map(draw, small), class_="trio")])


def _measure(name: str, points: list[Point]) -> Chart:
    share = name == "accuracy" and all(0 <= y <= 1 for _, y in points)
    unit, scale = ("%", 100.0) if share else ("", 1.0)
    return Chart(f"Held-out {name}", unit, [Series(name, points, "dots")], scale=scale, legend=False)


def _aligned(charts: list[Chart], run: Run) -> list[Chart]:
    """The charts over the same range of steps, with the steps at which the run was resumed."""
    xs = [x for chart in charts for series in chart.series for x, _ in series.points]
    if not xs:
        return charts
    low, high = min(xs), max(xs)
    steps = {number(event.fields.get("step")) for event in run.events if event.kind == "resumed"}
    marks = [(step, "resumed") for step in sorted(step for step in steps if step is not None) if low <= step <= high]
    return [replace(chart, marks=marks[-MARKS:], steps=(low, high)) for chart in charts]


def _smoothed(name: str, points: list[Point]) -> list[Series]:
    """A line; a running mean with the values faint behind it where there are many."""
    if len(points) < SMOOTH_FROM:
        return [Series(name, points)]
    mean = running_mean(points, len(points) // 20)
    return [Series(name, points, "faint"), Series("running mean", mean, "mean")]


def _table(fields: Fields, source: str) -> Html:
    """Plain values first, then each nested object under its own name."""
    if not fields:
        return tag("p", f"{source} is missing or empty.", class_="none")
    nested = {key: value for key, value in fields.items() if isinstance(value, dict) and value}
    plain = {key: value for key, value in fields.items() if key not in nested}
    parts = [_rows(plain, source)] if plain else []
    for key, value in nested.items():
        parts += [tag("h3", key), _rows(value, source)]
    return join(parts)


def _rows(fields: Fields, source: str) -> Html:
    cells = [tag("tr", tag("th", key, scope="row"), tag("td", _value(fields[key]))) for key in list(fields)[:ROWS]]
    more = tag("p", f"{len(fields) - ROWS} more are in {source}", class_="aside") if len(fields) > ROWS else Html("")
    return join([tag("div", tag("table", tag("tbody", *cells)), class_="columns"), more])


def _value(value: object) -> str:
    """Text as it is, anything else as JSON; cut where it is too long for a table."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _files(folder: Path) -> Html:
    logs = _names(folder / "logs", lambda path: path.suffix == ".log")
    ranks = _names(folder / "ranks", lambda path: path.suffix == ".jsonl")
    wanted = [*LISTED, *(f"logs/{name}" for name in logs), *(f"ranks/{name}" for name in ranks)]
    rows = [row for name in wanted if (row := _file(folder, name))]
    if not rows:
        return tag("p", "The folder is empty.", class_="none")
    more = tag("p", f"{len(rows) - ROWS} more are in the folder", class_="aside") if len(rows) > ROWS else Html("")
    return join([tag("ul", *rows[:ROWS], class_="files"), more])


def _names(folder: Path, wanted: Callable[[Path], bool]) -> list[str]:
    """Names in a folder, rank-2 before rank-10."""
    return sorted((path.name for path in children(folder) if wanted(path)), key=lambda name: (len(name), name))


def _file(folder: Path, name: str) -> Html | None:
    """A link with what is behind it; None for what is not there (a run that goes on removes old checkpoints)."""
    path = folder / name
    try:
        size = path.stat().st_size
    except OSError:
        return None
    inside = len(_names(path, lambda child: not child.name.startswith(".")))
    note = words.several(inside, "item") if path.is_dir() else words.size(size)
    return tag("li", tag("a", name, href=quote(name, errors="replace")), tag("span", note))


def write(run_dir: Path) -> Path:
    """Build report.html from what lies in the run folder; returns its path."""
    path = run_dir / "report.html"
    own_files.write(run_dir, path.name, build(run_dir, record.own(run_dir)).encode())
    return path
