"""Read a run folder for the page. Missing or torn files become a note, never an error.

Flow: runs/<id>/ (contract.md) -> `load` -> Run -> the page's sections. Reads inside the folder only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from ...core.errors import BadAnswer
from ...core.fields import json_object
from ...run import events as run_events
from ...run.files import apart, ends, own_files
from ...run.files.record import facts, story_of
from ...run.state.launchers import Launchers
from ...run.state.story import Happening
from .lines import MISSING, LinesRead, Share, children, noting

# Of all files of lines together. A page has the numbers of a whole run, and takes fifteen times as much memory.
MOST_READ = 16 << 20
# Beyond this, differences and products are no longer finite floats.
MOST = 1e100
STILL_READ = "its long files are still being read"
_MOST_OBJECT = 8 << 20
Fields = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """Something that happened on a rank, or that a node's agent reports (`rank` None). `t`: unix s."""

    t: float
    kind: str
    rank: int | None
    node: str
    fields: Fields


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

    `script`: the run of a user's script, which has no config.json, and no metrics if the watcher saw no loss. `story`:
    of its last start.
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
    paths = [path for place in apart.folders(folder) for path in children(place) if path.match("metrics*.jsonl")]
    lines = _in_order(paths or [folder / "metrics.jsonl"], unread, share, dict)
    events, times = _ranks(folder, unread, share)
    metrics, evaluations = _metrics(_not_repeated(lines, events))
    notes += [note for note in unread if not (script and note.endswith(MISSING))]
    nodes = {event.rank: event.node for event in events if event.rank is not None and event.node}
    return RunData(
        folder,
        record=record,
        config=config,
        environment=environment,
        outcome=ends.end_of(folder),
        metrics=metrics,
        evaluations=evaluations,
        events=sorted(events, key=lambda event: event.t),
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


def _metrics(rows: list[Fields]) -> tuple[list[Fields], list[Fields]]:
    """Training lines and evaluation lines, each with the last value for a step, in step order."""
    training: dict[float, Fields] = {}
    evaluations: dict[float, Fields] = {}
    for row in rows:
        step = number(row.get("step"))
        if step is None:
            continue
        if isinstance(row.get("eval"), dict):
            values = {str(name): value for name, each in row["eval"].items() if (value := number(each)) is not None}
            evaluations[step] = {"step": step, "samples": row.get("samples"), "values": values}
        else:
            training[step] = row
    return [training[step] for step in sorted(training)], [evaluations[step] for step in sorted(evaluations)]


def _not_repeated(rows: list[Fields], events: list[Event]) -> list[Fields]:
    """The lines of steps that no later start of a script has repeated."""
    stays = _staying((event.t, event.fields["step"]) for event in events if event.rank == 0 and _rewinds(event.fields))
    return [row for row in rows if stays(number(row.get("t")) or 0.0, number(row.get("step")) or 0.0)]


def _staying(rewinds: Iterable[tuple[float, float]]) -> Callable[[float, float], bool]:
    """Whether no later start repeats a step that was told of then. `rewinds`: when each began, and after which step."""
    ordered = sorted(rewinds)
    times = [at for at, _ in ordered]
    lowest = [MOST, *accumulate((step for _, step in reversed(ordered)), min)]
    return lambda at, step: step <= lowest[len(times) - bisect_right(times, at)]


def _rewinds(row: Fields) -> bool:
    """Whether this line says at which step a later start began."""
    return row.get("kind") == "continues" and row.get("known") is True and number(row.get("step")) is not None


def _ranks(folder: Path, notes: list[str], share: Share) -> tuple[list[Event], dict[int, list[StepTime]]]:
    """The events of every rank except its steps, and the step times by rank."""
    files = _rank_files(folder)
    if not files:
        notes.append(f"ranks/{MISSING}")
    events: list[Event] = []
    times: dict[int, list[StepTime]] = {}
    launchers = Launchers()
    for rank in sorted(files):
        last = 0.0
        rows: list[StepTime | Fields] = _in_order(files[rank], notes, share, _step_or_event)
        stays = _staying((at, row["step"]) for at, row in enumerate(rows) if isinstance(row, dict) and _rewinds(row))
        steps = {row.step: row for at, row in enumerate(rows) if isinstance(row, StepTime) and stays(at, row.step)}
        for row in rows:
            if isinstance(row, StepTime):
                continue
            last = number(row.get("t")) or last
            # Where nodes go on without others, ranks change their numbers, and their files keep theirs.
            own = row["rank"] if type(row.get("rank")) is int else rank
            launchers.meet(row)
            events.append(Event(last, str(row.get("kind")), own, str(row.get("node") or ""), row))
        if steps:
            ordered = [steps[step] for step in sorted(steps)]
            # The watcher of a script measures the first wait after some steps, and these would lower the mean.
            times[rank] = [time for time in ordered if time.wait_known] or ordered
    return [_placed(event, launchers) for event in events], times


def _placed(event: Event, launchers: Launchers) -> Event:
    """An event of a command that starts its ranks itself, with the number that it goes by at the end."""
    number_now = launchers.numbers.get(event.node) if event.fields.get("launcher") else None
    return event if number_now in (None, event.rank) else replace(event, rank=number_now)


def _rank_files(folder: Path) -> dict[int, list[Path]]:
    """The files of events by number: several where other hosts have had the rank."""
    files: dict[int, list[Path]] = {}
    for path in [path for place in apart.folders(folder) for path in children(place / "ranks")]:
        if match := re.fullmatch(r"rank-(\d{1,9})\.jsonl", path.name):
            files.setdefault(int(match[1]), []).append(path)
    return files


def _in_order(paths: list[Path], notes: list[str], share: Share, read: Callable[[Fields], Any]) -> list[Any]:
    """The objects of files, in the order of time where there are several."""

    def time_of(row: StepTime | Fields) -> float:
        return row.t if isinstance(row, StepTime) else number(row.get("t")) or 0.0

    rows = [row for path in paths for row in share.objects(path, notes, read)]
    return sorted(rows, key=time_of) if len(paths) > 1 else rows


def _step_or_event(row: Fields) -> StepTime | Fields | None:
    """The times of a step; any other row as it is."""
    if row.get("kind") != "step":
        return row
    step = number(row.get("step"))
    wait_known = "wait_ms" in row
    parts = [number(row.get(name, 0.0)) for name in ("data_ms", "compute_ms", "wait_ms")]
    if step is None or None in parts or not {"data_ms", "compute_ms"} <= row.keys():
        return None
    data, compute, wait = (max(0.0, part or 0.0) for part in parts)
    whole = max(number(row.get("step_ms")) or 0.0, data + compute + wait)
    count = max(1.0, number(row.get("count")) or 1.0)
    return StepTime(int(step), count, data, compute, wait, whole, wait_known, number(row.get("t")) or 0.0)


def _by_node(
    folder: Path, name: str, read: Callable[[object, float], Fields], notes: list[str], share: Share
) -> dict[str, list[Fields]]:
    """The lines of each node, in order of time, without lines that break the contract."""

    def checked(row: Fields) -> Fields | None:
        with suppress(BadAnswer):
            return read(row, 0.0) if "t" in row else None
        return None

    by_node: dict[str, list[Fields]] = {}
    paths = [path for place in apart.folders(folder) for path in children(place / name)]
    for path in [path for path in paths if path.suffix == ".jsonl"]:
        for event in share.objects(path, notes, checked):
            by_node.setdefault(event["node"], []).append(event)
    return {node: sorted(rows, key=lambda row: float(row["t"])) for node, rows in by_node.items()}
