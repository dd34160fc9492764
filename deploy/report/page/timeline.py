"""The timeline: the events of all ranks in order, each told once. Pure, except for the markup at the end.

Flow: events -> entries (equal ones of several ranks merged) -> a list; many routine entries are folded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from . import units as words
from .data import Event, Fields, number
from .html import Html, join, tag

TOGETHER_S = 30
ROUTINE = ("checkpoint", "evaluated")
FOLD_FROM = 30
SHOWN = 300


@dataclass
class Entry:
    """One line of the timeline. `sort` is the event's kind; `level` marks what went wrong."""

    t: float
    sort: str
    title: str
    detail: str
    level: str = ""
    ranks: list[int] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)


def entries(events: list[Event]) -> list[Entry]:
    """The events as lines in time order; the same line from several ranks within half a minute is one line."""
    told: list[Entry] = []
    latest: dict[tuple[str, str, str], Entry] = {}
    began = False
    for event in events:
        sentence = SENTENCES.get(event.kind)
        if sentence is None:
            continue
        if event.kind == "node" and told and told[-1].sort == "node" and event.t - told[-1].t <= TOGETHER_S:
            told[-1].title, told[-1].detail = "Nodes up", f"{told[-1].detail}, {_node(event.fields)[1]}"
            continue
        title, detail, level = sentence(event.fields)
        if event.kind == "started" and title == "Started" and began:
            title = "Started again"
        key = (event.kind, title, detail)
        before = latest.get(key)
        if before and event.t - before.t <= TOGETHER_S and event.rank is not None and event.rank not in before.ranks:
            before.ranks.append(event.rank)
            continue
        pause = number(event.fields.get("pause_ms"))
        entry = Entry(event.t, event.kind, title, detail, level, pauses=[] if pause is None else [pause])
        entry.ranks = [] if event.rank is None else [event.rank]
        latest[key] = entry
        told.append(entry)
        began = began or event.kind in ("plan", "outcome")
    return told


def section(events: list[Event], start: float | None) -> Html:
    """The timeline as a list, times relative to `start` (unix seconds; the first event's when None)."""
    told = entries(events)
    if not told:
        return tag("p", "No events were recorded.", class_="none")
    begin = told[0].t if start is None else start
    fold = sum(entry.sort == "checkpoint" for entry in told) > FOLD_FROM
    groups = _grouped(told) if fold else [[entry] for entry in told]
    lines = [_folded(group, begin) if len(group) > 2 else join([_line(e, begin) for e in group]) for group in groups]
    if len(lines) > SHOWN:
        left = tag("li", tag("time", "…"), tag("p", f"{len(lines) - SHOWN} more entries are in ranks/*.jsonl"))
        lines = [*lines[: SHOWN // 2], left, *lines[-SHOWN // 2 :]]
    note = "Times are minutes and seconds since the start, by each node’s own clock."
    return join([tag("ol", *lines, class_="timeline"), tag("p", note, class_="aside")])


def _grouped(told: list[Entry]) -> list[list[Entry]]:
    """Routine entries that follow each other, together; every other entry alone."""
    groups: list[list[Entry]] = []
    for entry in told:
        if groups and entry.sort in ROUTINE and groups[-1][-1].sort in ROUTINE:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return groups


def _folded(group: list[Entry], begin: float) -> Html:
    saved = [entry for entry in group if entry.sort == "checkpoint"]
    parts = [words.several(len(saved), "checkpoint")] if saved else []
    parts += [words.several(len(group) - len(saved), "evaluation")] if len(group) > len(saved) else []
    pauses = [pause for entry in saved for pause in entry.pauses]
    cost = (
        f": pause {words.milliseconds(median(pauses))} median, {words.milliseconds(max(pauses))} longest"
        if pauses
        else ""
    )
    inside = [_line(entry, begin) for entry in group[:SHOWN]]
    if len(group) > SHOWN:
        inside.append(tag("li", tag("time", "…"), tag("p", f"{len(group) - SHOWN} more are in ranks/rank-0.jsonl")))
    summary = tag("summary", tag("b", " and ".join(parts)), cost)
    return tag("li", _time(group[0], begin), tag("details", summary, tag("ol", *inside)), class_="routine")


def _time(entry: Entry, begin: float) -> Html:
    return tag("time", words.clock(entry.t - begin, tenths=True), title=words.date(entry.t))


def _line(entry: Entry, begin: float) -> Html:
    who = f"{words.ranks(entry.ranks)} · " if entry.sort in ("started", "stopping", "outcome") and entry.ranks else ""
    detail = tag("span", f" {who}{entry.detail}" if who or entry.detail else "")
    return tag("li", _time(entry, begin), tag("p", tag("b", entry.title), detail), class_=entry.level or entry.sort)


Sentence = tuple[str, str, str]


def _said(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return "" if value is None else str(value)


def _step(fields: Fields) -> str:
    step = number(fields.get("step"))
    return "" if step is None else f"step {words.count(step)}"


def _measures(fields: Fields, names: tuple[tuple[str, str, Callable[[float], str]], ...]) -> str:
    """`pause 3.1 ms · 2.4 MB`: those of the named fields that hold numbers."""
    found = [(text, show(value)) for name, text, show in names if (value := number(fields.get(name))) is not None]
    return " · ".join(f"{text} {value}".strip() for text, value in found)


def _node(fields: Fields) -> Sentence:
    node, host = _said(fields, "node"), _said(fields, "host")
    return "Node up", f"{node} on {host}" if host else node, ""


def _started(fields: Fields) -> Sentence:
    attempt = number(fields.get("attempt")) or 0
    world = number(fields.get("world"))
    parts = [
        "" if world is None else f"world size {words.count(world)}",
        _said(fields, "backend"),
        _said(fields, "device"),
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
    parts = [_said(fields, "recipe"), _measures(fields, numbers), _said(fields, "precision")]
    return "Plan", " · ".join(part for part in parts if part), ""


def _resumed(fields: Fields) -> Sentence:
    changes = fields.get("changes")
    said = "; ".join(map(str, changes)) if isinstance(changes, list) else ""
    return f"Resumed at {_step(fields)}", ": ".join(part for part in (_said(fields, "path"), said) if part), "mark-it"


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
    end = _said(fields, "verdict") or "ended"
    parts = (_step(fields), _said(fields, "message"))
    return (
        end[:1].upper() + end[1:],
        ": ".join(part for part in parts if part),
        "bad" if end in ("failed", "refused") else "",
    )


SENTENCES: dict[str, Callable[[Fields], Sentence]] = {
    "node": _node,
    "started": _started,
    "plan": _plan,
    "resumed": _resumed,
    "checkpoint": _checkpoint,
    "checkpoint_failed": lambda f: (f"Checkpoint failed at {_step(f)}", _said(f, "message"), "bad"),
    "checkpoint_damaged": lambda f: (f"Checkpoint damaged {_said(f, 'path')}".strip(), _said(f, "message"), "bad"),
    "evaluated": _evaluated,
    "stopping": lambda f: (f"Stopping at {_step(f)}", _said(f, "message"), "warn"),
    "outcome": _outcome,
    "told": lambda f: (_said(f, "text"), "", "warn" if f.get("grave") is True else ""),
}
