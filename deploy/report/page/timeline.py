"""The timeline: the events of all ranks in order, each once. Pure.

Flow: events -> lines (equal ones of several ranks merged, many routine ones folded) -> templates/run.html.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby

from ...core import text as words
from .data import BY_AGENTS, Event, Fields, number

TOGETHER_S = 30
# What many lines of a run say one after the other, and what one of them is called.
ROUTINE = {
    "checkpoint": "checkpoint",
    "evaluated": "evaluation",
    "started": "start",
    "began": "start",
    "resumed": "resume",
    "node": "node",
}
FOLD_FROM = 30
SHOWN = 300
# By kind: its title, the fields of its words, and what stands behind the first of these.
KINDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "node": ("Nodes up", ("node", "host"), " on "),
    "started": ("Started", ("world", "backend", "device"), " · "),
    "began": ("Ranks began", ("world",), ""),
    "plan": ("Plan", ("recipe", "steps", "start_step", "batch", "samples", "precision"), " · "),
    "resumed": ("Resumed at {step}", ("path", "changes"), ": "),
    "checkpoint": ("Checkpoint at {step}", ("pause_ms", "write_ms", "bytes"), " · "),
    "evaluated": ("Evaluated at {step}", ("values", "held_out"), " on "),
    "checkpoint_failed": ("Checkpoint failed at {step}", ("message",), ""),
    "checkpoint_damaged": ("Checkpoint damaged", ("path", "message"), ": "),
    "stopping": ("Stopping at {step}", ("message",), ""),
    "outcome": ("{verdict}", ("step", "message"), ": "),
    "ended": ("Rank ended", ("how", "error"), ": "),
    "kept": ("Output files", ("node", "files", "bytes"), ": "),
    "story": ("{text}", (), ""),
}
# The words before a number, and how it is written. Any other field is text.
NUMBERS: dict[str, tuple[str, Callable[[float], str]]] = {
    "world": ("world size", words.count),
    "step": ("step", words.count),
    "steps": ("steps", words.count),
    "start_step": ("from step", words.count),
    "batch": ("global batch", words.count),
    "samples": ("training samples", words.count),
    "held_out": ("", lambda count: f"{words.count(count)} held-out samples"),
    "pause_ms": ("pause", words.milliseconds),
    "write_ms": ("written in", words.milliseconds),
    "files": ("files", words.count),
    "bytes": ("", words.amount),
}
GRAVE = {"stopping": "warn", "checkpoint_failed": "bad", "checkpoint_damaged": "bad", "resumed": "ok"}
OF_RANKS = ("started", "stopping", "outcome", "began", "ended")


@dataclass
class TimelineLine:
    """One item of the timeline, with the `lines` folded into it. `style`: its class, which marks what went wrong."""

    t: float
    kind: str
    title: str
    detail: str
    style: str = ""
    ranks: set[int] = field(default_factory=set)
    lines: list[TimelineLine] = field(default_factory=list)
    clock: str = ""

    @property
    def date(self) -> str:
        """When it was, of a line that has a time."""
        return words.date(self.t) if self.t else ""

    @property
    def who(self) -> str:
        """The ranks, where the line is theirs."""
        return f"{words.ranks_in_words(self.ranks)} · " if self.kind in OF_RANKS and self.ranks else ""


def section(events: list[Event], start: float | None, script: bool = False) -> list[TimelineLine]:
    """The lines, times relative to `start` (unix seconds; default: the first event).

    Only for a `script` it shows the agents' own events: a rank of the trainer reports its start and end itself.
    """
    listed = _listed([event for event in events if script or event.kind not in BY_AGENTS])
    begin = start if start is not None or not listed else listed[0].t
    for line in listed:
        line.clock = words.clock(line.t - (begin or 0.0), tenths=True)
    lines = _folded(listed) if len(listed) > FOLD_FROM else listed
    if len(lines) > SHOWN:
        more = TimelineLine(0.0, "", "", f"{len(lines) - SHOWN} more entries are in ranks/*.jsonl", clock="…")
        lines = [*lines[: SHOWN // 2], more, *lines[-SHOWN // 2 :]]
    return lines


def _listed(events: list[Event]) -> list[TimelineLine]:
    """The events as lines in time order; the same line from several ranks within half a minute is one line."""
    listed: list[TimelineLine] = []
    latest: dict[tuple[str, str, str], TimelineLine] = {}
    begun: dict[str, set[int | None]] = {"started": set(), "began": set()}
    again, is_planned = set[str](), False
    for event in events:
        if event.kind not in KINDS or (event.kind == "plan" and is_planned):
            continue  # a later start of the ranks says from which step
        is_planned |= event.kind == "plan"
        if (ranks := begun.get(event.kind)) is not None:
            again |= {event.kind} if event.rank in ranks else set()
            ranks.add(event.rank)
        line = _line(event, event.kind in again)
        last = listed[-1] if listed else None
        if event.kind == "node" and last and last.kind == "node" and event.t - last.t <= TOGETHER_S:
            last.detail += f", {line.detail}"
            continue
        before = latest.get((event.kind, line.title, line.detail))
        if before and event.t - before.t <= TOGETHER_S and event.rank is not None and event.rank not in before.ranks:
            before.ranks.add(event.rank)
            continue
        latest[event.kind, line.title, line.detail] = line
        listed.append(line)
    return listed


def _folded(listed: list[TimelineLine]) -> list[TimelineLine]:
    """The lines, with consecutive routine ones below one that counts them."""
    lines: list[TimelineLine] = []
    for routine, group in groupby(listed, lambda line: line.kind in ROUTINE):
        inside = list(group)
        if routine and len(inside) > 2:
            counts = Counter(ROUTINE[line.kind] for line in inside)
            title = ", ".join(words.several(count, what) for what, count in counts.items())
            left = [TimelineLine(0.0, "", "", f"{len(inside) - SHOWN} more", clock="…")] * (len(inside) > SHOWN)
            first = inside[0]
            inside = [TimelineLine(first.t, "", title, "", "routine", lines=inside[:SHOWN] + left, clock=first.clock)]
        lines += inside
    return lines


def _line(event: Event, again: bool) -> TimelineLine:
    """An event in words; `again`: its ranks have begun before."""
    title, names, behind = KINDS[event.kind]
    fields = {**event.fields, "held_out": event.fields.get("samples"), "node": event.fields.get("node") or event.node}
    end = _field(fields, "verdict") or "ended"
    title = title.format(step=_field(fields, "step"), verdict=end[:1].upper() + end[1:], text=_field(fields, "text"))
    first, *others = [_field(fields, name) for name in names] or [""]
    detail = behind.join(filter(None, (first, " · ".join(filter(None, others)))))
    bad = (event.kind == "ended" and fields.get("code")) or end in ("failed", "refused")
    warn = again or fields.get("grave") is True
    style = "bad" if bad else "warn" if warn else GRAVE.get(event.kind, event.kind)
    ranks = set() if event.rank is None else {event.rank}
    return TimelineLine(event.t, event.kind, f"{title} again" if again else title, detail, style, ranks)


def _field(fields: Fields, name: str) -> str:
    """A field in words; empty where it is missing, or no number where one should be."""
    value = fields.get(name)
    if name in NUMBERS:
        label, show = NUMBERS[name]
        known = number(value)
        return "" if known is None else f"{label} {show(known)}".strip()
    if isinstance(value, dict):
        numbers = {str(key): known for key, each in value.items() if (known := number(each)) is not None}
        shown = (
            f"{key} {words.percent(known) if key == 'accuracy' else words.figure(known)}"
            for key, known in numbers.items()
        )
        return ", ".join(shown)
    return "; ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
