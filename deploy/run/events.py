"""What ranks and nodes write into a run folder, as docs/contract.md has it, read into checked events. Pure.

Containers write these files, and a script of the user's may write into them too. A line that cannot be read raises
BadAnswer; who reads a file passes it over, counts it, and tells the count as an event `unread`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import BadAnswer
from ..core.fields import (
    Reader,
    array,
    default,
    document,
    either,
    flag,
    nothing,
    real,
    record,
    scalar,
    table,
    text,
    whole,
)
from ..core.fields import words as said
from ..core.names import node_name

Event = dict[str, Any]

MOST_LINE = 1 << 20
_STEP = whole(0, 10**15)
_MS = default(real(0.0, 1e15), 0.0)
_RANK = whole(0, 65535)
_NODE = default(node_name, "")


def _measured(value: object, what: str) -> float:
    """A loss may be infinite, or not a number: that is news, and no fault."""
    return value if isinstance(value, float) else real()(value, what)


_TIMED: Mapping[str, Reader[Any]] = {"t": real(0.0, 1e11), "kind": text(50)}
_OF_RANK: Mapping[str, Reader[Any]] = {"rank": _RANK, "node": _NODE}
_TIMES = dict.fromkeys(("data_ms", "compute_ms", "wait_ms", "step_ms"), _MS)
# By kind: what it must have beside its time and kind, and what it may.
_KINDS: Mapping[str, tuple[Mapping[str, Reader[Any]], Mapping[str, Reader[Any]]]] = {
    "started": (
        {"rank": _RANK, "node": node_name},
        {"pid": whole(0, 1 << 32), "attempt": _STEP, "world": _STEP, "backend": said(50)},
    ),
    "plan": ({}, {"steps": _STEP, "recipe": said(200), "samples": _STEP, "batch": _STEP, "start_step": _STEP}),
    "resumed": ({"step": _STEP}, {"changes": array(said(), 1000), "path": said()}),
    "step": (
        {"rank": _RANK, "step": _STEP},
        {"steps": _STEP, "count": _STEP, "skipped": _STEP, "backward_ms": _MS, **_TIMES},
    ),
    "unseen": ({"what": text(50)}, {"message": said()}),
    "checkpoint": ({"step": _STEP}, {"pause_ms": _MS, "write_ms": _MS, "bytes": _STEP, "path": said()}),
    "checkpoint_failed": ({}, {"step": _STEP, "message": said()}),
    "checkpoint_damaged": ({}, {"path": said(), "message": said()}),
    "evaluated": ({"values": table(text(100), _measured, 100)}, {"step": _STEP, "samples": default(_STEP, 0)}),
    "stopping": ({}, {"step": _STEP, "message": said()}),
    "outcome": ({}, {}),
    "kept": ({**_OF_RANK, "files": _STEP, "bytes": _STEP}, {}),
    "began": (_OF_RANK, {"attempt": _STEP, "world": _STEP, "pid": _STEP}),
    "ended": (
        {**_OF_RANK, "code": whole(-255, 255)},
        {
            "how": default(said(200), ""),
            "victim": default(flag, False),
            "error": default(said(2_000), ""),
            "attempt": _STEP,
            "world": _STEP,
        },
    ),
}
_READERS = {
    kind: record({**_TIMED, **must}, {**_OF_RANK, **may}, others=scalar) for kind, (must, may) in _KINDS.items()
}
# A newer trainer may know more kinds, but not those that the control side makes itself.
_OTHER = record(_TIMED, _OF_RANK, others=scalar)
_OWN = ("node_up", "node", "metrics", "verdict", "left", "unread")
_METRICS = record(
    {"step": _STEP},
    {"t": real(0.0, 1e11), "loss": _measured, "samples_per_s": _MS, "eval": table(text(100), _measured, 100)},
    others=scalar,
)
_NODE_UP = record({"node": node_name}, {"t": real(0.0, 1e11)}, others=scalar)
_VERDICT = record(
    {"verdict": text(20, "[a-z]+")},
    {
        "t": real(0.0, 1e11),
        "rank": either(nothing, _RANK),
        "node": _NODE,
        "step": default(_STEP, 0),
        "message": default(said(20_000), ""),
        "hint": default(said(), ""),
        "since": default(real(0.0, 1e11), 0.0),
    },
    others=scalar,
)


def of_rank(value: object, now: float) -> Event:
    """One line of `ranks/rank-<r>.jsonl`; `now` where it has no time. Raises BadAnswer."""
    if not isinstance(value, dict):
        raise BadAnswer("an event", "an object", value)
    kind = text(50)(value.get("kind"), "kind")
    if kind in _OWN:
        raise BadAnswer("kind", "one that ranks may tell", kind)
    return _READERS.get(kind, _OTHER)({"t": now, "node": "", **value}, "")


def of_metrics(value: object, now: float) -> Event:
    """One line of `metrics.jsonl`. Raises BadAnswer."""
    return {"t": now, **_METRICS(value, ""), "kind": "metrics"}


def node_up(value: object, now: float) -> Event:
    """`nodes/<node>.json`. Raises BadAnswer."""
    return {"t": now, **_NODE_UP(value, ""), "kind": "node_up"}


def verdict(value: object, now: float) -> Event:
    """`outcome/<node>-<local rank>.json`. Raises BadAnswer."""
    return {"t": now, **_VERDICT(value, ""), "kind": "verdict"}


def unread(count: int, where: str, now: float) -> list[Event]:
    """The event that tells of lines passed over; none where there were none."""
    return [{"t": now, "kind": "unread", "count": count, "where": where}] if count else []


def last_words(lines: Iterable[str], now: float) -> list[Event]:
    """The verdicts and events that `host_commands.last_words` shows, with a word on what could not be read."""
    found, bad = list[Event](), 0
    for line in lines:
        if not line.strip():
            continue
        try:
            value = document(line, "an event", MOST_LINE)
            found.append(verdict(value, now) if isinstance(value, dict) and "verdict" in value else of_rank(value, now))
        except BadAnswer:
            bad += 1
    return found + unread(bad, "the last words", now)
