"""Compare two to eight runs: their differences, numbers and curves. Pure, except for reading the folders.

Flow: run folders -> page/data.load -> Comparison -> `lines`, or the `page` of the board.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from ..core import text
from ..core.errors import UsageError
from ..core.printable import one_line
from ..job.script import as_typed
from ..run.events import gpu_use
from ..run.files import code, standing
from ..run.files.record import backend_of
from .page import head, render, steps
from .page.charts import STYLES, Chart, Point, Series, draw
from .page.data import MOST_READ, Fields, RunData, RunReader, column, load
from .page.machines import mean_use
from .text import aligned, sparkline

LETTERS = "ABCDEFGH"
MOST_RUNS = len(LETTERS)
SAME = "the runs have the same command, code, packages and hosts, as far as these were recorded"
ROWS, LONGEST, BARS = 60, 160, 16
# Variables that differ in every start.
_START_VARIABLES = (
    *("MUSTER_RUN_ID", "MUSTER_RUN_DIR", "MUSTER_NODE", "MUSTER_RESUME_COMMAND", "MUSTER_SENT", "MUSTER_SHARE_KEY"),
    *("MUSTER_WORKER", "PET_RDZV_"),
)
_BASE = ("python", "torch", "cuda", "driver")
_START_FACTS = ("host", "threads", "resume", "run_dir")


@dataclass(frozen=True)
class Compared:
    """One value for each run, as text; empty if a run lacks it. `ratio`: for two runs, second number / first."""

    name: str
    values: list[str]
    ratio: str = ""


@dataclass(frozen=True)
class Curve:
    """One measure of each run, by step or by seconds since its start; a run that lacks it has no points."""

    name: str
    unit: str
    runs: list[list[Point]]
    axis: str = "step"


@dataclass(frozen=True)
class Comparison:
    """The comparison of runs. `differences`: by group, each with at least one row.

    `left_out`: how many rows did not fit. `same`: a sentence if there are no differences; else empty.
    """

    names: list[str]
    numbers: list[Compared]
    differences: list[tuple[str, list[Compared]]]
    curves: list[Curve]
    left_out: int
    same: str


def require_number(runs: Sequence[str]) -> None:
    """Raise UsageError for fewer than two runs, and for more than a person can tell apart."""
    if not 2 <= len(runs) <= MOST_RUNS:
        raise UsageError(
            f"{text.several(len(runs), 'run')} given: a comparison takes 2 to {MOST_RUNS}", "`muster runs` lists them"
        )


def compare(folders: Sequence[Path], most: int = MOST_READ) -> Comparison:
    """Compare run folders, ignoring missing and torn files. `most`: how many bytes to read of all runs together."""
    runs = [load(folder, reader=RunReader(folder, most // len(folders))) for folder in folders]
    groups = [(name, _rows([of(run) for run in runs])) for name, of in GROUPS.items()]
    shown = [(name, rows[:ROWS]) for name, rows in groups if rows]
    return Comparison(
        [folder.name for folder in folders],
        _numbers(runs),
        shown,
        [curve for curve in _curves(runs) if any(curve.runs)],
        sum(max(0, len(rows) - ROWS) for _, rows in groups),
        "" if shown else SAME,
    )


def lines(comparison: Comparison) -> list[str]:
    """The comparison as lines for a terminal."""
    shown = _table([Compared("", comparison.names), *comparison.numbers])
    curves = []
    for curve in comparison.curves:
        for name, points in zip(comparison.names, curve.runs, strict=True):
            if points and curve.axis == "step":
                bars = sparkline([y for _, y in points], BARS)
                ends = f"{text.figure(points[0][1])} {bars} {text.figure(points[-1][1])} {curve.unit}".rstrip()
                curves.append([curve.name, name, ends, f"{text.count(points[-1][0])} steps"])
    shown += aligned(curves)
    for name, rows in comparison.differences:
        shown += ["", f"{name}: what differs", *_table(rows)]
    if comparison.same:
        shown += ["", comparison.same]
    if comparison.left_out:
        shown.append(f"and {comparison.left_out} more differences")
    return [one_line(line) for line in shown]


def page(comparison: Comparison) -> str:
    """The comparison as a page of the board."""
    title = f"{len(comparison.names)} runs compared"
    drawn = [draw(_chart(curve, comparison.names)) for curve in comparison.curves]
    values = vars(comparison) | {"curves": drawn, "letters": LETTERS}
    return render.page("compare.html", title, style="board.css", **values)


def _chart(curve: Curve, names: Sequence[str]) -> Chart:
    """The chart of a curve. Each run has a letter and a colour; a second run with the same colour gets dashed lines."""
    styles = [*STYLES, *(f"{style} dashed" for style in STYLES)]
    series = [
        Series(f"{letter} {name}", points, style, letter)
        for letter, name, points, style in zip(LETTERS, names, curve.runs, styles, strict=False)
    ]
    title = f"{curve.name} by {'step' if curve.axis == 'step' else 'time'}"
    return Chart(title, curve.unit, series, log=curve.name == "loss", size="large", axis=curve.axis)


def _table(rows: Sequence[Compared]) -> list[str]:
    return aligned([[row.name, *(value or "-" for value in row.values), row.ratio] for row in rows])


def _numbers(runs: Sequence[RunData]) -> list[Compared]:
    """The results and costs of the runs that have them."""
    measures = [_measures(run) for run in runs]
    rows = [Compared("end", [standing.of(run.folder, head.summary(run).verdict).shown for run in runs])]
    for name, (show, _) in measures[0].items():
        values = [measured[name][1] for measured in measures]
        if any(value is not None for value in values):
            cells = ["" if value is None else show(value) for value in values]
            rows.append(Compared(name, cells, _ratio(*values) if len(values) == 2 else ""))
    return rows


def _measures(run: RunData) -> dict[str, tuple[Callable[[float], str], float | None]]:
    """For each measure's name: how to show its value, and the value, which is None if the run lacks it."""
    end = head.summary(run)
    means = [steps.mean(times) for times in run.times.values()]
    uses = [use / 100 for rows in run.telemetry.values() if (use := mean_use(rows, gpu_use)) is not None]

    def of_ranks(part: str) -> float | None:
        return mean(getattr(rank, part) for rank in means) if means else None

    return {
        "accuracy": (text.percent, end.accuracy),
        "last loss": (text.figure, end.loss),
        "step of that loss": (text.count, None if end.held_out or end.loss is None else float(end.loss_step)),
        "seconds": (text.duration, end.seconds),
        "steps": (text.count, max((float(times[-1].step) for times in run.times.values()), default=None)),
        "samples/s": (text.count, end.speed),
        "step time": (text.milliseconds, of_ranks("whole")),
        "data": (text.milliseconds, of_ranks("data")),
        "compute": (text.milliseconds, of_ranks("compute")),
        "waiting": (text.milliseconds, of_ranks("wait") if all(rank.wait_known for rank in means) else None),
        "GPU use": (text.percent, mean(uses) if uses else None),
    }


def _ratio(first: float | None, second: float | None) -> str:
    if first is None or second is None or first <= 0 or second <= 0:
        return ""
    return f"{text.figure(second / first)} ×"


def _curves(runs: Sequence[RunData]) -> list[Curve]:
    def spent(run: RunData) -> list[Point]:
        known = sorted(column(run.metrics, "loss", "t"))
        begin = head.summary(run).start or (known[0][0] if known else 0.0)
        return [(round(t - begin, 3), loss) for t, loss in known if t >= begin]

    return [
        Curve("loss", "", [column(run.metrics, "loss") for run in runs]),
        Curve("step time", "ms", [[(time.step, time.whole) for time in run.times.get(0, [])] for run in runs]),
        Curve("loss", "", [spent(run) for run in runs], "s"),
    ]


def _rows(runs: Sequence[Fields]) -> list[Compared]:
    """A row for each name whose values differ."""
    names = dict.fromkeys(name for run in runs for name in run)
    values = {name: ["" if run.get(name) is None else run[name] for run in runs] for name in names}
    return [
        Compared(_text(name), [_text(value) for value in own])
        for name, own in values.items()
        if any(value != own[0] for value in own)
    ]


def _text(value: object) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.shortened(shown, LONGEST)


def _command(run: RunData) -> Fields:
    words = as_typed(run.record.get("arguments", ()))
    config = {name: value for name, value in run.config.items() if name not in _START_FACTS}
    return {"script" if run.script else "arguments": words, **config}


def _code(run: RunData) -> Fields:
    known = code.read(run.folder)
    if known is None:
        return {}
    return {
        "commit": known.commit,
        "branch": known.branch,
        "changed": ", ".join(known.changed),
        "new": ", ".join(known.new),
        "diff (SHA-256)": hashlib.sha256(known.diff.encode(errors="replace")).hexdigest()[:16] if known.diff else "",
    }


def _packages(run: RunData) -> Fields:
    packages = run.environment.get("packages")
    return {**(packages if isinstance(packages, dict) else {}), **{name: run.environment.get(name) for name in _BASE}}


def _hosts(run: RunData) -> Fields:
    variables = run.environment.get("variables")
    own = variables if isinstance(variables, dict) else {}
    others = (*_BASE, "packages", "variables", *_START_FACTS)
    return {
        "backend": backend_of(run.record),
        "hosts": run.record.get("hosts"),
        "nodes": run.record.get("nodes"),
        **{name: value for name, value in run.environment.items() if name not in others},
        **{str(name): value for name, value in own.items() if not str(name).startswith(_START_VARIABLES)},
    }


GROUPS: Mapping[str, Callable[[RunData], Fields]] = {
    "Command": _command,
    "Code": _code,
    "Packages": _packages,
    "Hosts": _hosts,
}
