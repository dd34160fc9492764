"""The report of a run: one HTML page that needs no network; in a browser without scripts, its charts are plain lines.

Flow: the run folder -> data.load -> head, charts, steps, story, tables -> templates/run.html -> report.html.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from ...core import text as words
from ...core.errors import DeployError
from ...job.option_words import command_of
from ...run.files import code, own_files, record, standing, timeline
from ...run.files.standing import Standing
from ...run.state.story import Happening
from . import files, head, machines, render, scalars, steps
from .charts import Chart, Drawing, Point, Series, draw
from .data import Fields, RunData, RunReader, column, load

# The scripts of a page that the board keeps up to date.
LIVE = ("follow.js", "live.js")
NOTES = 12
# A story with more than FOLD_FROM lines is folded; if it has more than LINES, only its first and last lines are shown.
FOLD_FROM, LINES = 30, 300
LONGEST, FOLDED_LINES = 400, 2000
METRIC_CHARTS = 6
MARKS = 50
UNSEEN = 20
PATHS = 20
UNSEEN_NAMES = {
    "loss": "Loss",
    "steps": "Steps",
    "data": "Waiting for data",
    "skipped": "Skipped steps",
    "all": "Nothing observed",
}


def build(
    run_dir: Path, own: Fields | None = None, reader: RunReader | None = None, now: Standing | None = None
) -> str:
    """The page for a run folder. Missing, partial or torn files raise nothing: the page lists them.

    `own`: what this machine itself recorded about the run; the commands on the page come only from this. `reader`: the
    board's, which makes the page again while the run continues. `now`: what the
    board knows about the run.
    """
    run = load(run_dir, own, reader)
    end = head.summary(run)
    now = Standing(end.verdict) if end.verdict else now or standing.of(run_dir)
    listed, sent = files.listed(run_dir), code.read(run_dir)
    return render.page(
        "run.html",
        run.record.get("id") or run_dir.name,
        LIVE if reader else (),
        live=reader is not None,
        end=end,
        **head.state_of(now),
        now=now,
        made=time.strftime("%H:%M"),
        figures=head.figures(run, end),
        facts_of_run=head.facts(run, end),
        commands=head.commands(run, end),
        notes=run.notes[:NOTES] + ([f"and {len(run.notes) - NOTES} more"] if len(run.notes) > NOTES else []),
        training=_charts(run),
        unseen=_unseen(run),
        scalars=scalars.section(run.scalars),
        steps=steps.section(run.times, run.nodes),
        machines=machines.section(run.telemetry, end.start),
        last_lines=files.last_lines(run),
        story=_story(run, end.start),
        code=_code(sent),
        folded=_folded_texts(run, sent),
        files=listed[: files.ROWS],
        more_files=len(listed[files.ROWS :]),
        on_hosts=files.on_hosts(run),
        logs=[link for name, link, _ in listed if name.startswith("logs/")][: files.LOGS],
    )


def _held_out(run: RunData, name: str) -> list[Point]:
    return [(row["step"], row["values"][name]) for row in run.evaluations if name in row["values"]]


def _charts(run: RunData) -> list[Drawing]:
    """The loss (large), then held-out measures, learning rate and throughput, over the same steps.

    If samples are not counted, as with a script, the step time replaces the throughput. Charts without data are left
    out.
    """
    names = list(dict.fromkeys(name for row in run.evaluations for name in row["values"] if name != "loss"))
    names.sort(key=lambda name: name != "accuracy")
    charts = [_measure(name, _held_out(run, name)) for name in names[:METRIC_CHARTS]]
    charts.append(Chart("Learning rate", "", [Series("learning rate", column(run.metrics, "lr"))], zero=True))
    speed = [Series("samples/s", column(run.metrics, "samples_per_s"))]
    charts.append(Chart("Throughput", "samples/s", speed, zero=True, smooth=True))
    if not speed[0].points and 0 in run.times:
        taken = [Series("rank 0", [(time.step, time.whole) for time in run.times[0]])]
        charts.append(Chart("Step time", "ms", taken, note="ms, rank 0", zero=True, smooth=True))
    note = "rank 0’s own" if run.script else "mean over the global batch"
    loss = [Series("training", column(run.metrics, "loss")), Series("held-out", _held_out(run, "loss"), "dots")]
    main = Chart("Loss", "", loss, note=note, log=True, size="large", smooth=True)
    return [drawing for chart in _aligned([main, *charts], run) if (drawing := draw(chart))]


def _unseen(run: RunData) -> list[tuple[str, str]]:
    """What a script's watcher could not see, and on which ranks: each reason once.

    A program that ran before the one that trains may have ended without a step: that is not reported for its rank.
    """
    trains = {event["rank"]: event["t"] for event in run.events if event["kind"] == "started"}
    ranks: dict[tuple[str, str], list[int]] = {}
    for event in run.events:
        if event["kind"] == "unseen":
            if event["what"] == "steps" and event["t"] < trains.get(event.get("rank"), 0.0):
                continue
            ranks.setdefault((event["what"], event.get("message", "")), []).append(event.get("rank", 0))
    shown = [
        (UNSEEN_NAMES.get(what, what), f"{words.ranks_in_words(numbers)}: {why}"[:LONGEST])
        for (what, why), numbers in ranks.items()
    ]
    return shown[:UNSEEN]


def _measure(name: str, points: list[Point]) -> Chart:
    share = name == "accuracy" and all(0 <= y <= 1 for _, y in points)
    shown = [(x, 100 * y) for x, y in points] if share else points
    return Chart(f"Held-out {name}", "%" * share, [Series(name, shown, "dots")], top=100.0 if share else None)


def _aligned(charts: list[Chart], run: RunData) -> list[Chart]:
    """The charts, all with the same range of steps and with marks at the steps from which the run was resumed."""
    xs = [x for chart in charts for series in chart.series for x, _ in series.points]
    if not xs:
        return charts
    low, high = min(xs), max(xs)
    again = ("started", "resumed") if run.script else ("resumed",)
    resumed = {event.get("step", -1) for event in run.events if event["kind"] in again and not event.get("rank")}
    over = (event for event in run.events if event["kind"] == "continues" and event["step"] == 0)
    resumed -= {event["before"] for event in over}  # starting over from the beginning is not a resume
    marks = [(step, "resumed") for step in sorted(resumed) if low <= step <= high]
    return [replace(chart, marks=marks[-MARKS:], steps=(low, high)) for chart in charts]


def _story(run: RunData, start: float | None) -> Fields:
    """The story as the live view told it, or would have told it if nobody followed the run. `start`: where time begins.

    A long story is folded, below its grave lines.
    """
    story = timeline.read(run.folder, 0) or run.state.story
    is_long = len(story) > FOLD_FROM
    return {
        "begin": story[0].t if start is None and story else start or 0.0,
        "count": len(story),
        "shown": _shortened([line for line in story if line.grave or not is_long]),
        "folded": _shortened(story) if is_long else [],
    }


def _shortened(lines: list[Happening]) -> list[Happening]:
    """The lines; if there are very many, only the first and the last of them."""
    if len(lines) <= LINES:
        return lines
    half = LINES // 2
    more = Happening(lines[half].t, f"{len(lines) - LINES} more are in timeline.jsonl")
    return [*lines[:half], more, *lines[-half:]]


def _code(known: code.Code | None) -> list[tuple[str, str]]:
    """Which code ran, as names and values."""
    if known is None:
        return []
    not_shown = (*known.left_out, *["further or large files"] * known.cut)
    named = (("Changed", known.changed), ("New", known.new), ("Not in the diff", not_shown))
    changed = [(name, words.listed(paths, PATHS)) for name, paths in named] if known.dirty else [("Changed", "nothing")]
    return [("Commit", known.commit), ("Branch", known.branch if known.branch != "HEAD" else ""), *changed]


def _folded_texts(run: RunData, known: code.Code | None) -> dict[str, str]:
    """Folded texts, which few readers open, by their titles; their number of lines and line lengths are limited."""
    sent = {
        host: ", ".join(f"{words.amount(size)} from {source}" for source, size in sources.items())
        for host, sources in run.record.get("sources", {}).items()
    }
    texts = {
        "The diff": known.diff if known else "",
        "What was sent": "\n".join(f"{host}: {what}" for host, what in sent.items()),
        "Configuration": _document(run.config),
        "Environment": _document(run.environment),
    }
    return {title: _cut(text) for title, text in texts.items() if text}


def _document(fields: Fields) -> str:
    return json.dumps(fields, indent=1, ensure_ascii=False) if fields else ""


def _cut(text: str) -> str:
    lines = [words.shortened(line, LONGEST) for line in text.split("\n")]
    return "\n".join(lines if len(lines) <= FOLDED_LINES else [*lines[:FOLDED_LINES], "…"])


def write(run_dir: Path) -> Path:
    """Build report.html from the run folder; returns its path. Raises DeployError if it cannot be written."""
    path = run_dir / "report.html"
    try:
        own_files.write(run_dir, path.name, build(run_dir, record.own_fields(run_dir)).encode())
    except OSError as fault:
        what = f"{path}: cannot be written: {fault.strerror}"
        raise DeployError(what, f"then: {command_of('report', more=run_dir.name)}") from fault
    return path
