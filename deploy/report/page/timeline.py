"""The timeline: the events of all ranks in order, each once. Pure.

Flow: events -> entries (equal ones of several ranks merged) -> lines (many routine entries folded) -> timeline.html.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from . import units as words
from .data import BY_AGENTS, Event, Fields, number

TOGETHER_S = 30
ROUTINE = ("checkpoint", "evaluated")
# Where nodes come and go, the story says who trains from which step, and this is how.
AGAIN = ("node", "started", "resumed", "plan")
OF_RANKS = ("started", "stopping", "outcome", "began", "ended")
FOLD_FROM = 30
SHOWN = 300


@dataclass
class TimelineEntry:
    """One line of the timeline. `sort` is the event's kind; `level` marks what went wrong; `routine`: may be folded."""

    t: float
    sort: str
    title: str
    detail: str
    level: str = ""
    routine: bool = False
    ranks: list[int] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class TimelineLine:
    """One item of timeline.html, with the `lines` folded into it. Without a title it stands for omitted lines."""

    clock: str
    date: str = ""
    title: str = ""
    detail: str = ""
    style: str = ""
    lines: tuple[TimelineLine, ...] = ()


@dataclass
class Attempts:
    """Counts how often the ranks of a run began: torchrun counts from 0 again on each node that is started again.

    `ranks` have begun in this attempt, since `t`.
    """

    number: int = -1
    t: float = 0.0
    ranks: set[int] = field(default_factory=set)

    def count_attempt(self, event: Event) -> int:
        """The attempt in which a rank begins: another one, if it has begun in this one, or the others long ago."""
        if self.number < 0 or event.rank in self.ranks or event.t - self.t > TOGETHER_S:
            self.number, self.ranks = max(self.number + 1, int(number(event.fields.get("attempt")) or 0)), set()
            self.t = event.t
        self.ranks |= set() if event.rank is None else {event.rank}
        return self.number


def entries(events: list[Event]) -> list[TimelineEntry]:
    """The events as lines in time order; the same line from several ranks within half a minute is one line."""
    listed: list[TimelineEntry] = []
    latest: dict[tuple[str, str, str], TimelineEntry] = {}
    began, epochs = False, any(event.kind == "members" for event in events)
    attempts = {kind: Attempts() for kind in ("began", "started")}
    for event in events:
        sentence = SENTENCES.get(event.kind)
        if sentence is None:
            continue
        last = listed[-1] if listed else None
        if event.kind == "node" and last and last.sort == "node" and event.t - last.t <= TOGETHER_S:
            last.title, last.detail = "Nodes up", f"{last.detail}, {_node(event.fields)[1]}"
            continue
        fields = event.fields
        if event.kind in attempts and ((attempt := attempts[event.kind].count_attempt(event)) and _counts(event)):
            fields = {**fields, "attempt": attempt}
        title, detail, level = sentence(fields)
        if began and event.kind == "node":
            title = "Node up again"
        if event.kind == "started" and (epochs or title == "Started") and began:
            title = "Started again"  # where nodes come and go, each has counted its attempts for itself
        if event.kind == "plan" and began:
            if last and last.sort == "resumed":
                continue  # it has the step
            title, detail = f"From step {words.count(number(event.fields.get('start_step')) or 0)}", ""
        key = (event.kind, title, detail)
        before = latest.get(key)
        if before and event.t - before.t <= TOGETHER_S and event.rank is not None and event.rank not in before.ranks:
            before.ranks.append(event.rank)
            continue
        pause = number(event.fields.get("pause_ms"))
        entry = TimelineEntry(event.t, event.kind, title, detail, level, pauses=[] if pause is None else [pause])
        entry.routine = event.kind in ROUTINE or (epochs and began and event.kind in AGAIN)
        entry.ranks = [] if event.rank is None else [event.rank]
        latest[key] = entry
        listed.append(entry)
        began = began or event.kind in ("plan", "outcome")
    return listed


def _counts(event: Event) -> bool:
    """Whether the number of a start is that of an attempt: a resumed run of the trainer starts at its attempt 0."""
    return event.kind == "began" or bool(number(event.fields.get("attempt")))


def section(events: list[Event], start: float | None, script: bool = False) -> list[TimelineLine]:
    """The lines of templates/timeline.html, times relative to `start` (unix seconds; default: the first event).

    Only for a `script` it shows the agents' own events: a rank of the trainer reports its start and end itself.
    """
    listed = entries([event for event in events if script or event.kind not in BY_AGENTS])
    if not listed:
        return []
    begin = listed[0].t if start is None else start
    fold = sum(entry.sort == "checkpoint" for entry in listed) > FOLD_FROM
    groups = _grouped(listed) if fold else [[entry] for entry in listed]
    lines: list[TimelineLine] = []
    for group in groups:
        lines += [_folded(group, begin)] if len(group) > 2 else [_line(entry, begin) for entry in group]
    if len(lines) > SHOWN:
        omission = TimelineLine("…", detail=f"{len(lines) - SHOWN} more entries are in ranks/*.jsonl")
        lines = [*lines[: SHOWN // 2], omission, *lines[-SHOWN // 2 :]]
    return lines


def _grouped(listed: list[TimelineEntry]) -> list[list[TimelineEntry]]:
    """Groups of consecutive routine entries; every other entry alone."""
    groups: list[list[TimelineEntry]] = []
    for entry in listed:
        if groups and entry.routine and groups[-1][-1].routine:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return groups


def _folded(group: list[TimelineEntry], begin: float) -> TimelineLine:
    saved = [entry for entry in group if entry.sort == "checkpoint"]
    counts = [("checkpoint", len(saved))]
    counts += [("evaluation", sum(entry.sort == "evaluated" for entry in group))]
    parts = [words.several(count, what) for what, count in counts if count]
    if starts := sum(entry.sort == "started" for entry in group):
        parts.append("the ranks started again" + (f" {words.count(starts)} times" if starts > 1 else ""))
    pauses = [pause for entry in saved for pause in entry.pauses]
    cost = (
        f": pause {words.milliseconds(median(pauses))} median, {words.milliseconds(max(pauses))} longest"
        if pauses
        else ""
    )
    inside = [_line(entry, begin) for entry in group[:SHOWN]]
    if len(group) > SHOWN:
        inside.append(TimelineLine("…", detail=f"{len(group) - SHOWN} more are in ranks/rank-0.jsonl"))
    return TimelineLine(*_time(group[0], begin), ", ".join(parts) or group[0].title, cost, "routine", tuple(inside))


def _time(entry: TimelineEntry, begin: float) -> tuple[str, str]:
    return words.clock(entry.t - begin, tenths=True), words.date(entry.t)


def _line(entry: TimelineEntry, begin: float) -> TimelineLine:
    who = f"{words.ranks_in_words(entry.ranks)} · " if entry.sort in OF_RANKS and entry.ranks else ""
    return TimelineLine(*_time(entry, begin), entry.title, f"{who}{entry.detail}", entry.level or entry.sort)


Sentence = tuple[str, str, str]


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return "" if value is None else str(value)


def _step(fields: Fields) -> str:
    step = number(fields.get("step"))
    return "" if step is None else f"step {words.count(step)}"


def _measures(fields: Fields, names: tuple[tuple[str, str, Callable[[float], str]], ...]) -> str:
    """`pause 3.1 ms · 2.4 MB`: those of the named fields that hold numbers."""
    shown = [(text, show(value)) for name, text, show in names if (value := number(fields.get(name))) is not None]
    return " · ".join(f"{text} {value}".strip() for text, value in shown)


def _node(fields: Fields) -> Sentence:
    node, host = _text(fields, "node"), _text(fields, "host")
    return "Node up", f"{node} on {host}" if host else node, ""


def _started(fields: Fields) -> Sentence:
    attempt = number(fields.get("attempt")) or 0
    world = number(fields.get("world"))
    parts = [
        "" if world is None else f"world size {words.count(world)}",
        _text(fields, "backend"),
        _text(fields, "device"),
    ]
    title = "Started" if attempt < 1 else f"Restarted, attempt {words.count(attempt)}"
    return title, " · ".join(part for part in parts if part), "warn" if attempt >= 1 else ""


def _plan(fields: Fields) -> Sentence:
    numbers = (
        ("steps", "steps", words.count),
        ("start_step", "from step", words.count),
        ("batch", "global batch", words.count),
        ("samples", "training samples", words.count),
    )
    parts = [_text(fields, "recipe"), _measures(fields, numbers), _text(fields, "precision")]
    return "Plan", " · ".join(part for part in parts if part), ""


def _resumed(fields: Fields) -> Sentence:
    changes = fields.get("changes")
    sentences = "; ".join(map(str, changes)) if isinstance(changes, list) else ""
    return (
        f"Resumed at {_step(fields)}",
        ": ".join(part for part in (_text(fields, "path"), sentences) if part),
        "mark-it",
    )


def _checkpoint(fields: Fields) -> Sentence:
    numbers = (
        ("pause_ms", "pause", words.milliseconds),
        ("write_ms", "written in", words.milliseconds),
        ("bytes", "", words.size),
    )
    return f"Checkpoint at {_step(fields)}", _measures(fields, numbers), ""


def _evaluated(fields: Fields) -> Sentence:
    values = fields.get("values")
    shown = []
    for name, raw in values.items() if isinstance(values, dict) else ():
        value = number(raw)
        if value is not None:
            shown.append(f"{name} {words.percent(value) if name == 'accuracy' else words.figure(value)}")
    samples = number(fields.get("samples"))
    on = "" if samples is None else f" on {words.count(samples)} held-out samples"
    return f"Evaluated at {_step(fields)}", ", ".join(shown) + on, ""


def _outcome(fields: Fields) -> Sentence:
    end = _text(fields, "verdict") or "ended"
    parts = (_step(fields), _text(fields, "message"))
    return (
        end[:1].upper() + end[1:],
        ": ".join(part for part in parts if part),
        "bad" if end in ("failed", "refused") else "",
    )


def _began(fields: Fields) -> Sentence:
    attempt, world = number(fields.get("attempt")) or 0, number(fields.get("world"))
    title = "Ranks began" if attempt < 1 else f"Ranks began again, attempt {words.count(attempt)}"
    return title, "" if world is None else f"world size {words.count(world)}", "warn" if attempt >= 1 else ""


def _ended(fields: Fields) -> Sentence:
    code = number(fields.get("code"))
    parts = (_text(fields, "how"), _text(fields, "error"))
    return "Rank ended", ": ".join(part for part in parts if part), "bad" if code else ""


def _files_left(fields: Fields) -> Sentence:
    measures = _measures(fields, (("files", "files", words.count), ("bytes", "", words.size)))
    return "Left behind", f"{_text(fields, 'node')}: {measures}", ""


SENTENCES: dict[str, Callable[[Fields], Sentence]] = {
    "node": _node,
    "started": _started,
    "plan": _plan,
    "resumed": _resumed,
    "checkpoint": _checkpoint,
    "checkpoint_failed": lambda f: (f"Checkpoint failed at {_step(f)}", _text(f, "message"), "bad"),
    "checkpoint_damaged": lambda f: (f"Checkpoint damaged {_text(f, 'path')}".strip(), _text(f, "message"), "bad"),
    "evaluated": _evaluated,
    "stopping": lambda f: (f"Stopping at {_step(f)}", _text(f, "message"), "warn"),
    "outcome": _outcome,
    "began": _began,
    "ended": _ended,
    "kept": _files_left,
    "story": lambda f: (_text(f, "text"), "", "warn" if f.get("grave") is True else ""),
}
