"""The runs of a host and their progress, as frozen values, and the readers of the host's answers. Pure.

hosts/look/status.py asks the engine and the host (scripts status and runs); report/tables.py makes the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ..core import fields
from ..core.errors import FAILED, BadAnswer
from ..core.fields import decimal, digits, optional, text
from ..core.names import NodeName, RunId, run_ids
from ..engine.engine import Container as Seen
from ..run import events
from ..run.events import Event
from . import facts
from . import gpus as gpu_facts
from .gpus import Gpus

# How many bytes from the end of a console are searched for its last line.
_MOST_LINES = 4000
_FOLDER = re.compile(r"(.+?) ([0-9]*) ([0-9]*) ?(\S*)")
# A step report is overdue after this many seconds, and this many times the usual time.
_OVERDUE_S, _OVERDUE_TIMES = 10.0, 3.0
_WORD, _STEP = optional(text(20)), optional(digits())


@dataclass(frozen=True)
class NodeStatus:
    """A run's node on one host. A number is None, a text empty, if the run does not report it; scripts report nothing.

    `state` and `uptime` ("Up 3 minutes") are the engine's words, `code` is the exit code. `step` is that of the slowest
    rank here, `step_ms` its mean, `step_age_s` the age of its report; only rank 0's host knows `batch` (global).
    `stands`: that report is so old that its rate no longer holds. `repeats`: steps that a later start repeated are
    counted twice, as in run/progress.py. `verdict` comes from the ranks. `last_line` is the console's last line,
    `last_line_age_s` its age. `user`: the owner of a run that is not ours. `gpus`: the UUIDs of the GPUs that it was
    given. `container`: its name.
    """

    run: RunId
    node: NodeName
    place: int
    command: str
    state: str
    uptime: str
    code: int | None
    created: float | None
    step: int | None = None
    steps: int | None = None
    step_ms: float | None = None
    step_age_s: float | None = None
    stands: bool = False
    repeats: bool = False
    batch: int | None = None
    verdict: str = ""
    last_line: str = ""
    last_line_age_s: float | None = None
    user: str = ""
    gpus: tuple[str, ...] = ()
    container: str = ""

    @property
    def runs(self) -> bool:
        """Whether the node is running."""
        return self.code is None and self.state in ("running", "paused", "restarting")


@dataclass(frozen=True)
class HostStatus:
    """A host: its nodes, the running ones first, and its GPUs."""

    nodes: tuple[NodeStatus, ...]
    gpus: Gpus


@dataclass(frozen=True)
class HostRun:
    """A run on one host: its folder (`changed` in unix seconds, `bytes`), and its container if it still exists.

    `checkpoint` is the step of its last checkpoint there.
    """

    run: RunId
    changed: float | None = None
    bytes: int = 0
    checkpoint: int | None = None
    verdict: str = ""
    node: NodeStatus | None = None


def parse_runs(answer: str, containers: Iterable[Seen] = (), home: str = "") -> tuple[HostRun, ...]:
    """Read the answer of runs; `containers`: the runs' containers, as the engine lists them. Skips other users' runs.

    Folders that are not runs are skipped. Raises BadAnswer for a line that no engine or tool writes.
    """
    rows = fields.rows(answer)
    verdicts = _by_run(rows, "verdict")
    runs = {}
    for row in rows.get("folder", ()):
        cells = _FOLDER.fullmatch(row)
        if cells is None:
            raise BadAnswer("a run folder", "its name, time, size and last step", row)
        name, changed, kilobytes, last = cells.groups()
        for run in run_ids([name]) if changed and kilobytes else ():  # without them, it has just been removed
            t, size = decimal()(changed, "time"), digits(1 << 50)(kilobytes, "size") * 1024
            runs[run] = HostRun(run, t, size, _STEP(last, ""), _verdict(verdicts.get(run, [])))
    for node in _nodes(containers, home):
        if not node.user:
            runs[node.run] = replace(runs.get(node.run, HostRun(node.run)), node=node)
    return tuple(runs[run] for run in sorted(runs))


def parse(
    answer: str, containers: Iterable[Seen] = (), home: str = "", consoles: Mapping[str, bytes] | None = None
) -> HostStatus:
    """Read the answer to `commands.status`; `consoles`: the ends of the consoles of `containers`, by their names.

    Raises BadAnswer for a line that no engine or tool writes. Events of ranks that cannot be read are skipped.
    """
    rows = fields.rows(answer)
    now = fields.default(decimal(), 0.0)(fields.first(rows, "time"), "time")
    happened, verdicts = _by_run(rows, "event"), _by_run(rows, "verdict")
    nodes = []
    for node in _nodes(containers, home):
        if not node.user:
            node = _with_steps(node, happened.get(node.run, []), now)
            node = replace(node, verdict=_verdict(verdicts.get(node.run, [])))
        nodes.append(_with_last_line(node, (consoles or {}).get(node.container, b""), now))
    nodes.sort(key=lambda node: (not node.runs, -(node.created or 0), node.run))
    return HostStatus(tuple(nodes), gpu_facts.parse(answer.split("\n")))


def rate(node: NodeStatus, batch: int | None) -> float | None:
    """Samples per second of the whole run as this node sees it; `batch` is the run's global batch."""
    return batch * 1000 / node.step_ms if batch and node.step_ms and not node.stands else None


def _nodes(containers: Iterable[Seen], home: str) -> Iterator[NodeStatus]:
    """The nodes of runs. Other users may label theirs as they like: nodes of theirs that cannot be read are skipped."""
    for seen in containers:
        for known in facts.containers([seen], home):
            yield NodeStatus(
                run=known.run,
                node=known.node,
                place=known.place,
                command=seen.labels.get("muster.command", "")[:1000],
                state=known.status,
                uptime=seen.words,
                code=FAILED if known.status == "dead" else known.code,
                created=seen.created or None,
                gpus=tuple(filter(gpu_facts.UUID.fullmatch, seen.labels.get("muster.gpus", "").split(","))),
                container=known.name,
                user="" if known.ours else known.user,
            )


def _with_steps(node: NodeStatus, rows: Sequence[str], now: float) -> NodeStatus:
    """The node with its step and rate from the ranks' events; events that cannot be read are skipped."""
    events_read = [event for row in rows if (event := _event(row, now))]
    # The folder also has the files of earlier starts, which may have had other ranks.
    since = node.created or 0.0
    last = {event["rank"]: event for event in events_read if event["kind"] == "step" and event["t"] >= since}
    plan: Event = next((event for event in events_read if event["kind"] == "plan"), {})
    node = replace(node, batch=plan.get("batch"))
    if not last:
        return node
    slowest = min(last.values(), key=lambda event: event["step"])
    t = max(event["t"] for event in last.values())
    age_s = round(max(0.0, now - t), 1)
    # A report comes after every `count` steps.
    usual_s = max(1, slowest.get("count", 1)) * (slowest.get("step_ms") or 0.0) / 1000
    return replace(
        node,
        step=slowest["step"],
        steps=slowest.get("steps"),
        step_ms=slowest.get("step_ms"),
        step_age_s=age_s,
        stands=age_s > max(_OVERDUE_S, _OVERDUE_TIMES * usual_s),
        repeats=any(event["kind"] == "continues" and not event["known"] for event in events_read),
    )


def _event(row: str, now: float) -> Event | None:
    try:
        return events.of_rank(fields.document(row, "an event", events.MOST_LINE), now)
    except BadAnswer:
        return None


def _with_last_line(node: NodeStatus, console: bytes, now: float) -> NodeStatus:
    for row in reversed(console[-_MOST_LINES:].decode(errors="replace").split("\n")):
        stamp, _, text = row.partition(" ")
        t = parse_time(stamp)
        if t is not None and any(map(str.isalnum, text)):  # skip separators such as `====`
            return replace(node, last_line=text.rstrip("\r\n"), last_line_age_s=round(max(0.0, now - t), 1))
    return node


def parse_time(stamp: str) -> float | None:
    """Read an engine's `2026-11-21T05:21:16.219120949Z` as unix seconds; None for any other text."""
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp[10:11] == "T" and stamp.isascii() else None
    except (ValueError, OverflowError):
        return None


def _verdict(rows: Sequence[str]) -> str:
    """The worst of the ranks' verdicts."""
    verdicts = {_WORD(fields.object_or_empty(row).get("verdict"), "") for row in rows}
    return next((word for word in ("refused", "failed", "stopped", "done") if word in verdicts), "")


def _by_run(rows: Mapping[str, list[str]], word: str) -> dict[str, list[str]]:
    return fields.rows("\n".join(rows.get(word, ())))
