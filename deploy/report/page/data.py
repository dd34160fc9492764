"""Read a run folder for the page. Missing or torn files become a note, never an error.

Flow: runs/<id>/ (contract.md) -> `load` -> RunData -> the page's sections. run/follower.py reads the lines, as it does
for a command that follows the run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from ...core.budget import Budget
from ...core.errors import BadAnswer
from ...core.fields import json_object
from ...core.text import several
from ...run.events import Event
from ...run.files import own_files, recorded_ends
from ...run.files.record import facts, story_of
from ...run.follower import Follower
from ...run.progress import State
from ...run.state.ranks import StepTime, step_time
from ...run.state.story import Happening

# The bytes read of all files with lines together. A page has the numbers of a whole run, and needs fifteen times as
# much memory.
MOST_READ = 16 << 20
# Beyond this, differences and products are no longer finite floats.
MOST = 1e100
STILL_READ = "its long files are still being read"
_MISSING = ": missing"
_TOO_SLOW = "reading all of them takes too long, so the head and the story lack the last ones"
# An event counts as this many bytes in addition to those read; the time that the budget allows for them is ten times
# what an event usually takes.
_EVENT = 50
_MOST_OBJECT, _MOST_FILES = 8 << 20, 10_000
Events = list[Event]
Fields = dict[str, Any]


@dataclass(frozen=True)
class RunData:
    """The data for the page. `metrics` and `evaluations` have the last value for each step, in step order.

    `events`: all events that are neither steps nor numbers, sorted by time. `script`: the run of a user's script, which
    has no config.json, and no metrics if the watcher saw no loss. `story`: that of the last start. `state`: the state
    that a follower of the run has, but without steps.
    """

    folder: Path
    record: Fields
    config: Fields
    environment: Fields
    outcome: Fields
    metrics: list[Fields]
    evaluations: list[Fields]
    events: Events
    times: dict[int, list[StepTime]]
    nodes: dict[int, str]
    notes: list[str]
    own: Fields
    state: State
    script: bool = False
    telemetry: dict[str, list[Fields]] = field(default_factory=dict)
    scalars: dict[str, list[Fields]] = field(default_factory=dict)
    story: list[Happening] = field(default_factory=list)


def number(value: object) -> float | None:
    """A finite float, or None for anything else: text, a boolean, NaN, an impossible number."""
    if isinstance(value, bool) or not isinstance(value, float | int) or not -MOST < value < MOST:
        return None
    return float(value)


def column(rows: list[Fields], name: str, by: str = "step") -> list[tuple[float, float]]:
    """The points of a metric, without lines that lack it or whose value is not finite."""
    return [(row[by], value) for row in rows if (value := number(row.get(name))) is not None]


class RunReader:
    """What has been read from a run folder; each `load` adds what is new.

    `most`: how many bytes to read of all files with lines together. `quick`: no long file is read as a whole, so events
    of ranks are missing.
    """

    def __init__(self, folder: Path, most: int = MOST_READ, quick: bool = False) -> None:
        self.folder, self.quick, self._most = folder, quick, most
        self._begin()

    def _begin(self) -> None:
        self._follower = Follower(self.folder, from_start=True, most=self._most, quick=self.quick)
        self._rows: dict[str, Events] = {}
        self._unread, self.record = Counter[tuple[str, str]](), facts(self.folder)
        self.state = State(self.record.get("nodes") or (), script=self.record.get("script", False))
        self.steps: dict[int, list[StepTime]] = {}

    def look(self) -> None:
        """Read what is new; read everything again if files are not the same any more, or have become too long."""
        if not self._follower.only_grew or self.record != facts(self.folder):
            self._begin()
        events = self._follower.read(0.0)
        budget = Budget()  # separate from the follower's budget
        for event in events:
            budget.add(_EVENT)
            if event["kind"] == "step":
                if "data_ms" in event and "compute_ms" in event:
                    self.steps.setdefault(event["rank"], []).append(step_time(event, event["t"]))
            elif event["kind"] == "unread":
                self._take_unread(event)
            else:
                if budget.is_over:
                    self._unread["events", _TOO_SLOW] += 1
                else:
                    for odd in self.state.apply(event):
                        self._take_unread(odd)
                kind = event["kind"] if event["kind"] in ("metrics", "telemetry", "scalars") else ""
                self._rows.setdefault(kind, []).append(event)

    def _take_unread(self, event: Event) -> None:
        self._unread[event["where"], event["why"]] += event["count"]

    def rows(self, kind: str = "") -> Events:
        """The lines of this kind of numbers, or (empty) all events that are neither numbers nor steps, by time."""
        renumbered = self.state.ranks.launchers.renumbered
        return sorted((renumbered(row) for row in self._rows.get(kind, ())), key=itemgetter("t"))

    def by_node(self, kind: str) -> dict[str, Events]:
        """The lines of each node, without lines that have no time."""
        by_node: dict[str, Events] = {}
        for row in self.rows(kind):
            if row["t"]:
                by_node.setdefault(row["node"], []).append(row)
        return by_node

    def notes(self) -> list[str]:
        """Sentences about what is left out."""
        unread = [
            f"{where}: {why or several(count, 'line') + ' cannot be read and are left out'}"
            for (where, why), count in self._unread.items()
        ]
        return [
            *unread,
            *(f"{Path(name).name}: its last line is incomplete and left out" for name in self._follower.unfinished()),
        ]


def load(folder: Path, own: Fields | None = None, reader: RunReader | None = None) -> RunData:
    """Read a run folder. Missing, partial or torn files raise nothing: `notes` lists them.

    `own`: as in run.build. `reader`: what has been read for an earlier page.
    """
    reader = reader or RunReader(folder)
    reader.look()
    notes, unread = [STILL_READ] * reader.quick, list[str]()
    if not folder.is_dir():
        notes.append(f"{folder.name}: there is no such folder")
    _object(folder / "record.json", notes)
    script = reader.record.get("script", False)
    config, environment, _ = (_object(folder / f"{name}.json", unread) for name in ("config", "environment", "outcome"))
    events, lines = reader.rows(), reader.rows("metrics")
    if not lines:
        with _noting(folder / "metrics.jsonl", unread):
            own_files.read_end(folder, "metrics.jsonl", 0)
    if not children(folder / "ranks"):
        unread.append(f"ranks/{_MISSING}")
    rewinds: dict[int, list[tuple[float, float]]] = {}
    for event in events:
        if event["kind"] == "continues" and event["known"]:
            rewinds.setdefault(event["rank"], []).append((event["t"], event["step"]))
    stays = _staying(rewinds.get(0, ()))
    metrics, evaluations = _metrics(row for row in lines if stays(row["t"], row["step"]))
    times = {rank: _times(steps, rewinds.get(rank, ())) for rank, steps in sorted(reader.steps.items())}
    notes += [note for note in unread if not (script and note.endswith(_MISSING))]
    return RunData(
        folder,
        record=reader.record,
        config=config,
        environment=environment,
        outcome=recorded_ends.end_of(folder),
        metrics=metrics,
        evaluations=evaluations,
        events=events,
        times={rank: steps for rank, steps in times.items() if steps},
        nodes={event["rank"]: event["node"] for event in events if event.get("rank") is not None and event.get("node")},
        notes=[*dict.fromkeys(notes + reader.notes())],
        own=own or {},
        state=reader.state,
        script=script,
        telemetry=reader.by_node("telemetry"),
        scalars=reader.by_node("scalars"),
        story=story_of(folder),
    )


def _object(path: Path, notes: list[str]) -> Fields:
    with _noting(path, notes):
        text = own_files.read(path, _MOST_OBJECT).decode(errors="replace")
        with suppress(BadAnswer):
            return json_object(text, path.name, _MOST_OBJECT)
        notes.append(f"{path.name}: not a JSON object, left out")
    return {}


@contextmanager
def _noting(path: Path, notes: list[str]) -> Iterator[None]:
    """Note that a file is missing, or cannot be read."""
    try:
        yield
    except FileNotFoundError:
        notes.append(f"{path.name}{_MISSING}")
    except OSError as error:
        notes.append(f"{path.name}: cannot be read: {error.strerror}")


def children(folder: Path) -> list[Path]:
    """The paths in a folder, sorted by name; empty if it is a link, is not a folder, or cannot be read."""
    try:
        return [] if folder.is_symlink() else sorted(islice(folder.iterdir(), _MOST_FILES))
    except OSError:
        return []


def _metrics(rows: Iterable[Event]) -> tuple[Events, Events]:
    """Training lines and evaluation lines, each with the last value for every step, in step order."""
    training = {}
    evaluations = {}
    for row in rows:
        if "eval" in row:
            values = {name: value for name, each in row["eval"].items() if (value := number(each)) is not None}
            evaluations[row["step"]] = {"step": row["step"], "samples": row.get("samples"), "values": values}
        else:
            training[row["step"]] = row
    return [training[step] for step in sorted(training)], [evaluations[step] for step in sorted(evaluations)]


def _staying(rewinds: Iterable[tuple[float, float]]) -> Callable[[float, float], bool]:
    """A function that tells whether no later start repeats a step that was reported at a time.

    `rewinds`: when each start began, and after which step.
    """
    ordered = sorted(rewinds)
    times = [at for at, _ in ordered]
    lowest = [MOST, *accumulate((step for _, step in reversed(ordered)), min)]
    return lambda at, step: step <= lowest[len(times) - bisect_right(times, at)]


def _times(steps: list[StepTime], rewinds: Iterable[tuple[float, float]]) -> list[StepTime]:
    """The last time of each step that no later start repeats, in step order."""
    stays = _staying(rewinds)
    last = {each.step: each for each in sorted(steps, key=lambda each: each.t) if stays(each.t, each.step)}
    ordered = [last[step] for step in sorted(last)]
    # A script's watcher measures no waits in the first steps, which would lower the mean; they are left out.
    return [each for each in ordered if each.wait_known] or ordered
