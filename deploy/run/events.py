"""Turn a line that a rank or a node wrote into a run folder (contract.md) into a checked event. Pure.

Containers write these files, and a user's script may write into them, too. A line that cannot be read raises BadAnswer;
the reader of the file skips the line, counts it, and reports the count as an event `unread`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    row,
    scalar,
    table,
    text,
    whole,
)
from ..core.fields import words as words
from ..core.names import node_name
from ..core.printable import one_line

Event = dict[str, Any]
# The fields of an event, each with its reader.
Shape = Mapping[str, Reader[Any]]

MOST_LINE = 1 << 20
_STEP = whole(10**15)
_MOST_NODES = 1024
_MS = default(real(1e15), 0.0)
_RANK = whole(65535)
# A cause of causes/end_causes.py; a newer trainer may know more causes.
_CAUSE = default(text(40, r"[a-z-]*"), "")
_NODE = default(node_name, "")


def _measured(value: object, what: str) -> float:
    """Read a loss, which may be infinite or NaN: that is news for the user, not a bad line."""
    return value if isinstance(value, float) else real(least=-1e300)(value, what)


_TIMED: Shape = {"t": real(1e11), "kind": text(50)}
# A collective of a waiting rank: its group, its number in the group, its name and size, and the script's file, line and
# function.
COLLECTIVES = array(row(words(40), _STEP, words(40), words(40), words(200), _STEP, words(100)), 64)
# The addresses of both ends of connections.
_PAIRS = array(row(text(64), text(64)), 64)
_OF_RANK: Shape = {"rank": _RANK, "node": _NODE}
# What a rank is doing, in addition to the word for it (`doing`). Its agent reports it while the rank is stuck, and when
# `muster why` asks.
DOING: Shape = {
    **{name: default(words(most), "") for name, most in (("file", 200), ("function", 100), ("op", 40), ("disk", 300))},
    **{name: default(words(most), "") for name, most in (("error", 300), ("thread_error", 300))},
    **dict.fromkeys(("program", "tracer"), default(words(100), "")),
    **dict.fromkeys(("line", "step"), default(_STEP, 0)),
    "since_s": default(real(1e9), 0.0),
    "collectives": default(COLLECTIVES, list[list[Any]]()),
}
_TIMES = dict.fromkeys(("data_ms", "compute_ms", "wait_ms", "step_ms"), _MS)
# For each kind: the fields that an event must have in addition to its time and kind, and those that it may have.
_KINDS: Mapping[str, tuple[Shape, Shape]] = {
    "started": (
        {"rank": _RANK, "node": node_name},
        {"world": _STEP, "backend": words(50), "step": _STEP},
    ),
    "plan": ({}, {"steps": _STEP, "recipe": words(200), "samples": _STEP, "start_step": _STEP}),
    "resumed": ({"step": _STEP}, {"changes": array(words())}),
    "step": (
        {"rank": _RANK, "step": _STEP},
        {"steps": _STEP, "count": _STEP, **_TIMES},
    ),
    "continues": (
        {"rank": _RANK, "step": _STEP, "before": _STEP, "known": flag},
        {"anew": flag, "empty": flag, "another": flag},
    ),
    "put_aside": (
        {**_OF_RANK, "files": _STEP, "bytes": _STEP, "place": text(40, r"(?:earlier/\d+)?")},
        {"message": words(200)},
    ),
    "unseen": ({"what": text(50)}, {"message": words()}),
    "checkpoint": ({"step": _STEP}, {"pause_ms": _MS}),
    "copied": ({"step": _STEP}, {}),
    "checkpoint_failed": ({}, {"step": _STEP, "message": words()}),
    "checkpoint_damaged": ({}, {"message": words()}),
    "evaluated": ({"values": table(text(100), _measured, 100)}, {"step": _STEP, "samples": default(_STEP, 0)}),
    "stopping": ({}, {"step": _STEP, "message": words()}),
    "stuck": ({**_OF_RANK, "doing": text(20, "[a-z]+")}, DOING),
    "moves": (_OF_RANK, {}),
    "links": ({**_OF_RANK, "unanswered": _PAIRS, "crowded": _PAIRS}, {"silent": _PAIRS, "answering": _PAIRS}),
    "throttled": ({**_OF_RANK, "percent": real(100.0), "cpus": real(1e5)}, {}),
    "alone": ({**_OF_RANK, "why": words(500)}, {"hint": words(500), "waits": flag}),
    "weights": ({**_OF_RANK, "step": _STEP, "digest": text(40, "[0-9a-f]+")}, {}),
    "waits": ({**_OF_RANK, "why": words(500)}, {"since": real(1e11)}),
    "conflicts": ({**_OF_RANK, "paths": array(words(200), 20), "count": _STEP}, {}),
    "own_library": ({**_OF_RANK, "path": words(200)}, {}),
    "shared": ({**_OF_RANK, "source": node_name, "files": _STEP, "bytes": _STEP}, {}),
    "members": (
        {
            **_OF_RANK,
            "epoch": _STEP,
            "members": array(node_name, _MOST_NODES),
            "before": array(node_name, _MOST_NODES),
            "planned": _STEP,
        },
        {"spares": array(node_name, _MOST_NODES), "left": array(node_name, _MOST_NODES)},
    ),
    "role": (
        {**_OF_RANK, "role": text(31, "[a-z][a-z0-9-]*"), "phase": text(20, "[a-z]+")},
        {"why": words(300), "again": flag, "restarts": _STEP},
    ),
    "apart": ({**_OF_RANK, "left_out": node_name, "others": array(node_name, _MOST_NODES)}, {}),
    "kept": (
        {**_OF_RANK, "files": _STEP, "bytes": _STEP},
        {"top": words(20), "downloads": _STEP, "place": words(200)},
    ),
    "outside": ({**_OF_RANK, "paths": array(words(200), 20), "files": _STEP, "bytes": _STEP}, {}),
    "asked": ({**_OF_RANK, "grace_s": real(86_400.0)}, {}),
    "began": (_OF_RANK, {}),
    "ended": (
        {**_OF_RANK, "code": whole(255, least=-255)},
        {
            "how": default(words(200), ""),
            "cause": _CAUSE,
            "place": default(words(200), ""),
            "victim": default(flag, False),
            "error": default(words(2_000), ""),
            "collectives": COLLECTIVES,
        },
    ),
}
_READERS = {
    kind: record({**_TIMED, **must}, {**_OF_RANK, **may}, others=scalar) for kind, (must, may) in _KINDS.items()
}
# A newer trainer may write more kinds of events, but never the kinds that the control side itself makes.
_OTHER_KIND = record(_TIMED, _OF_RANK, others=scalar)
_OWN_KINDS = ("node_up", "node", "metrics", "telemetry", "scalars", "verdict", "left", "unread")
_METRICS = record(
    {"step": _STEP},
    {"t": real(1e11), "loss": _measured, "samples_per_s": _MS, "eval": table(text(100), _measured, 100)},
    others=scalar,
)
_PERCENT, _BYTES = real(100.0), whole(1 << 60)
_GPU = record(
    {"index": whole(1023)},
    {
        "name": words(100),
        "use_percent": _PERCENT,
        "memory_bytes": _BYTES,
        "memory_total_bytes": _BYTES,
        "power_w": real(1e5),
        "celsius": real(1000.0, least=-100.0),
        "sm_mhz": real(1e6),
        "memory_mhz": real(1e6),
        "throttled": array(text(40), 20),
    },
)
_TELEMETRY = record(
    {"node": node_name},
    {
        "t": real(1e11),
        "cores": whole(1 << 20),
        "cpu_percent": _PERCENT,
        "memory_bytes": _BYTES,
        "memory_limit_bytes": _BYTES,
        "disk_free_bytes": _BYTES,
        "network": table(text(50), row(real(1e15), real(1e15)), 100),
        "gpus": array(_GPU, 64),
        "gpu_unseen": words(200),
        "halted": words(100),
    },
)
_SCALARS = record(
    {
        "node": node_name,
        "file": text(300),
        "tags": table(text(100), array(row(_STEP, _measured)), 300),
    },
    {"t": real(1e11)},
)
_NODE_UP = record({"node": node_name}, {"t": real(1e11), "address": words(64)}, others=scalar)
_VERDICT = record(
    {"verdict": text(20, "[a-z]+")},
    {
        "t": real(1e11),
        "rank": either(nothing, _RANK),
        "node": _NODE,
        "step": default(_STEP, 0),
        "message": default(words(20_000), ""),
        "hint": default(words(), ""),
        "cause": _CAUSE,
        "since": default(real(1e11), 0.0),
    },
    others=scalar,
)


def react(of: object, event: Event, *more: object) -> None:
    """Call the object's method for this kind of event, `_on_<kind>`, if it has one."""
    if (reaction := getattr(of, f"_on_{event.get('kind')}", None)) is not None:
        reaction(event, *more)


def changes_nodes(members: Event) -> bool:
    """Whether an event `members` changes which nodes train; if not, a rank is started again on its node."""
    return set(members["members"]) != set(members["before"])


def gpu_use(telemetry: Mapping[str, Any]) -> float | None:
    """The mean use of a node's GPUs in percent, from a telemetry event; None if no GPU reports it."""
    uses = [gpu["use_percent"] for gpu in telemetry.get("gpus", ()) if "use_percent" in gpu]
    return sum(uses) / len(uses) if uses else None


def of_rank(value: object, now: float) -> Event:
    """Read one line of `ranks/rank-<r>.jsonl`; a line without a time gets `now`. Raises BadAnswer."""
    if not isinstance(value, dict):
        raise BadAnswer("an event", "an object", value)
    kind = text(50)(value.get("kind"), "kind")
    if kind in _OWN_KINDS:
        raise BadAnswer("kind", "one that ranks may write", kind)
    return _READERS.get(kind, _OTHER_KIND)({"t": now, "node": "", **value}, "")


def _reader(kind: str, fields: Reader[dict[str, Any]]) -> Callable[[object, float], Event]:
    """Make a reader of lines or documents of one kind, which adds `now` if they have no time and raises BadAnswer."""
    return lambda value, now: {"t": now, **fields(value, ""), "kind": kind}


# These read a line of `metrics.jsonl`, `telemetry/<node>.jsonl` and `scalars/<node>.jsonl`.
of_metrics, of_telemetry = _reader("metrics", _METRICS), _reader("telemetry", _TELEMETRY)
of_scalars = _reader("scalars", _SCALARS)
# These read the documents `nodes/<node>.json` and `outcome/<node>-<local rank>.json`.
node_up, verdict = _reader("node_up", _NODE_UP), _reader("verdict", _VERDICT)


def verdict_of_host(value: object, now: float) -> Event:
    """Read a verdict that another machine wrote, and put its hint in quotation marks.

    A command that Muster itself suggests to type comes only from Muster's own tables.
    """
    event = verdict(value, now)
    hint = one_line(event.get("hint", "")).replace('"', "'")
    return {**event, "hint": f'{event.get("node") or "a host"} says: "{hint}"' if hint else ""}


def unread(count: int, where: str, now: float, why: str = "") -> list[Event]:
    """The event that reports skipped lines; empty if there were none. `why`: a reason other than bad content."""
    return [{"t": now, "kind": "unread", "count": count, "where": where, "why": why}] if count else []


def last_words(answer: str, now: float) -> list[Event]:
    """Read the answer to `host_commands.last_words`: verdicts and events, and an event `unread` for other lines."""
    events, bad = list[Event](), 0
    for line in answer.split("\n"):
        if not line.strip():
            continue
        try:
            value = document(line, "an event", MOST_LINE)
            events.append(
                verdict_of_host(value, now) if isinstance(value, dict) and "verdict" in value else of_rank(value, now)
            )
        except BadAnswer:
            bad += 1
    return events + unread(bad, "the last words", now)
