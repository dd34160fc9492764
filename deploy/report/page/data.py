"""Read a run folder for the page. Missing or torn files become a note, never an error.

Flow: runs/<id>/ (contract.md) -> `load` -> Run -> the page's sections. Reads inside the folder only. run/events.py
checks each line, as it does for who follows the run.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

from ...core.errors import BadAnswer
from ...core.fields import json_object
from ...run import events as run_events
from ...run.events import Event
from ...run.files import ends, own_files
from ...run.files.record import facts, story_of
from ...run.state.launchers import Launchers
from ...run.state.story import Happening
from .lines import MISSING, LinesRead, Share, files_of, noting

# Of all files of lines together. A page has the numbers of a whole run, and takes fifteen times as much memory.
MOST_READ = 16 << 20
# Beyond this, differences and products are no longer finite floats.
MOST = 1e100
STILL_READ = "its long files are still being read"
_MOST_OBJECT = 8 << 20
Fields = dict[str, Any]


@dataclass(frozen=True)
class StepTime:
    """The parts of a step in milliseconds, the mean of the `count` steps that end at `step`, at `t` (unix seconds).

    `wait` is 0 if it is not known; `compute` then includes it.
    """

    step: int
    count: float
    data: float
    compute: float
    wait: float
    whole: float
    wait_known: bool = True
    t: float = 0.0


@dataclass(frozen=True)
class RunData:
    """The data of the page. `metrics` and `evaluations` have the last value for a step, in step order.

    `events`: all but the steps, in order of time. `script`: the run of a user's script, which has no config.json, and
    no metrics if the watcher saw no loss. `story`: of its last start.
    """

    folder: Path
    record: Fields
    config: Fields
    environment: Fields
    outcome: Fields
    metrics: list[Fields]
    evaluations: list[Fields]
    events: list[Event]
    times: dict[int, list[StepTime]]
    nodes: dict[int, str]
    notes: list[str]
    own: Fields
    script: bool = False
    telemetry: dict[str, list[Fields]] = field(default_factory=dict)
    scalars: dict[str, list[Fields]] = field(default_factory=dict)
    story: list[Happening] = field(default_factory=list)


def number(value: object) -> float | None:
    """A finite float, or None for anything else: text, a boolean, NaN, an impossible number."""
    if isinstance(value, bool) or not isinstance(value, float | int) or not -MOST < value < MOST:
        return None
    return float(value)


def column(rows: list[Fields], name: str) -> list[tuple[float, float]]:
    """The points of a metric, without lines that lack it or have no finite value."""
    return [(row["step"], value) for row in rows if (value := number(row.get(name))) is not None]


def load(
    folder: Path,
    own: Fields | None = None,
    most: int = MOST_READ,
    quick: bool = False,
    known: dict[Path, LinesRead] | None = None,
) -> RunData:
    """Read a run folder. It does not raise for missing, partial or torn files: `notes` names them.

    `own`: as in page.build. `most`: so much is taken of all files of lines together.
    `quick`: no long file is read as a whole, so that events of ranks are missing. `known`: as in `Share`.
    """
    notes: list[str] = [STILL_READ] if quick else []
    if not folder.is_dir():
        notes.append(f"{folder.name}: there is no such folder")
    _object(folder / "record.json", notes)
    record = facts(folder)
    script = record.get("script", False)
    unread: list[str] = []
    share = Share(folder, most, quick, {} if known is None else known)
    config, environment, _ = (_object(folder / f"{name}.json", unread) for name in ("config", "environment", "outcome"))
    # Several where rank 0 has been on other nodes.
    paths = [path for path in files_of(folder) if path.name.startswith("metrics")]
    lines = _in_order(paths or [folder / "metrics.jsonl"], unread, share, lambda row: run_events.of_metrics(row, 0.0))
    events, times = _ranks(folder, unread, share)
    metrics, evaluations = _metrics(_not_repeated(lines, events))
    notes += [note for note in unread if not (script and note.endswith(MISSING))]
    nodes = {event["rank"]: event["node"] for event in events if event["node"]}
    return RunData(
        folder,
        record=record,
        config=config,
        environment=environment,
        outcome=ends.end_of(folder),
        metrics=metrics,
        evaluations=evaluations,
        events=sorted(events, key=itemgetter("t")),
        times=times,
        nodes=nodes,
        notes=notes,
        own=own or {},
        script=script,
        telemetry=_by_node(folder, "telemetry", run_events.of_telemetry, notes, share),
        scalars=_by_node(folder, "scalars", run_events.of_scalars, notes, share),
        story=story_of(folder),
    )


def _object(path: Path, notes: list[str]) -> Fields:
    with noting(path, notes):
        text = own_files.read(path, _MOST_OBJECT).decode(errors="replace")
        with suppress(BadAnswer):
            return json_object(text, path.name, _MOST_OBJECT)
        notes.append(f"{path.name}: not a JSON object, left out")
    return {}


def _metrics(rows: list[Event]) -> tuple[list[Event], list[Event]]:
    """Training lines and evaluation lines, each with the last value for a step, in step order."""
    training: dict[int, Event] = {}
    evaluations: dict[int, Event] = {}
    for row in rows:
        if "eval" in row:
            values = {name: value for name, each in row["eval"].items() if (value := number(each)) is not None}
            evaluations[row["step"]] = {"step": row["step"], "samples": row.get("samples"), "values": values}
        else:
            training[row["step"]] = row
    return [training[step] for step in sorted(training)], [evaluations[step] for step in sorted(evaluations)]


def _not_repeated(rows: list[Event], events: list[Event]) -> list[Event]:
    """The lines of steps that no later start of a script has repeated."""
    stays = _staying((event["t"], event["step"]) for event in events if event["rank"] == 0 and _rewinds(event))
    return [row for row in rows if stays(row["t"], row["step"])]


def _staying(rewinds: Iterable[tuple[float, float]]) -> Callable[[float, float], bool]:
    """Whether no later start repeats a step that was told of then. `rewinds`: when each began, and after which step."""
    ordered = sorted(rewinds)
    times = [at for at, _ in ordered]
    lowest = [MOST, *accumulate((step for _, step in reversed(ordered)), min)]
    return lambda at, step: step <= lowest[len(times) - bisect_right(times, at)]


def _rewinds(event: Event) -> bool:
    """Whether this says at which step a later start began."""
    return event["kind"] == "continues" and event["known"] is True


def _ranks(folder: Path, notes: list[str], share: Share) -> tuple[list[Event], dict[int, list[StepTime]]]:
    """The events of every rank except its steps, and the step times by rank."""
    files = _rank_files(folder)
    if not files:
        notes.append(f"ranks/{MISSING}")
    events: list[Event] = []
    times: dict[int, list[StepTime]] = {}
    launchers = Launchers()
    for rank in sorted(files):
        rows: list[StepTime | Event] = _in_order(files[rank], notes, share, _step_or_event)
        stays = _staying((at, row["step"]) for at, row in enumerate(rows) if isinstance(row, dict) and _rewinds(row))
        steps = {row.step: row for at, row in enumerate(rows) if isinstance(row, StepTime) and stays(at, row.step)}
        # Where nodes go on without others, ranks change their numbers, and their files keep theirs.
        own = [{"rank": rank, **row} for row in rows if isinstance(row, dict)]
        for event in own:
            launchers.meet(event)
        events += own
        if steps:
            ordered = [steps[step] for step in sorted(steps)]
            # The watcher of a script measures the first wait after some steps, and these would lower the mean.
            times[rank] = [time for time in ordered if time.wait_known] or ordered
    return [launchers.placed(event) for event in events], times


def _rank_files(folder: Path) -> dict[int, list[Path]]:
    """The files of events by number: several where other hosts have had the rank."""
    files: dict[int, list[Path]] = {}
    for path in files_of(folder, "ranks"):
        if match := re.fullmatch(r"rank-(\d{1,9})\.jsonl", path.name):
            files.setdefault(int(match[1]), []).append(path)
    return files


def _in_order(paths: list[Path], notes: list[str], share: Share, read: Callable[[Fields], Any]) -> list[Any]:
    """The objects of files, in the order of time where there are several."""
    rows = [row for path in paths for row in share.objects(path, notes, read)]
    return sorted(rows, key=lambda row: row.t if isinstance(row, StepTime) else row["t"]) if len(paths) > 1 else rows


def _step_or_event(row: Fields) -> StepTime | Event | None:
    """The times of a step; any other event as it is."""
    event = run_events.of_rank(row, 0.0)
    if event["kind"] != "step":
        return event
    if not {"data_ms", "compute_ms"} <= row.keys():
        return None
    data, compute, wait, whole = (event.get(f"{name}_ms", 0.0) for name in ("data", "compute", "wait", "step"))
    whole, count = max(whole, data + compute + wait), max(1, event.get("count", 1))
    return StepTime(event["step"], count, data, compute, wait, whole, "wait_ms" in row, event["t"])


def _by_node(
    folder: Path, name: str, read: Callable[[object, float], Fields], notes: list[str], share: Share
) -> dict[str, list[Fields]]:
    """The lines of each node, in order of time, without lines that break the contract."""

    def checked(row: Fields) -> Fields | None:
        return read(row, 0.0) if "t" in row else None

    by_node: dict[str, list[Fields]] = {}
    for path in files_of(folder, name):
        for event in share.objects(path, notes, checked):
            by_node.setdefault(event["node"], []).append(event)
    return {node: sorted(rows, key=itemgetter("t")) for node, rows in by_node.items()}
