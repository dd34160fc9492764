"""What runs on a host and how far it is, as frozen values, and the reader of what the host says of it. Pure.

hosts/status.py asks (`look_commands.status`); report/tables.py puts it in words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ..core import fields
from ..core.errors import FAILED, BadAnswer
from ..core.fields import decimal, default, digits, optional, text
from ..core.names import NodeName, RunId, node_name, run_id, run_ids
from ..run import events
from ..run.events import Event
from . import facts
from . import gpus as gpu_facts
from .gpus import Gpus

_EXITED = re.compile(r"Exited \(([0-9]{1,9})\)")
_FOLDER = re.compile(r"(.+?) ([0-9]*) ([0-9]*) ?(\S*)")
_CELLS = fields.row(text(20), text(200), text(100), text(100), default(digits(0, 1 << 20), 0), text(1000))
_WORD, _STEP = optional(text(20)), optional(digits())


@dataclass(frozen=True)
class NodeStatus:
    """A run's node on one host. Numbers are None, texts empty, where the run does not say: a script of the user's.

    `state` and `uptime` ("Up 3 minutes") are the engine's words, `code` the exit code. `step` is that of the slowest
    rank here, `step_ms` its mean, `step_age_s` how long ago it said so; `batch` (global) is known where rank 0 is.
    `verdict` is the ranks' own. `said` is the console's last line, `said_age_s` how old it is. `user`: whose run it
    is, where it is another user's.
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
    batch: int | None = None
    verdict: str = ""
    said: str = ""
    said_age_s: float | None = None
    user: str = ""

    @property
    def runs(self) -> bool:
        """Whether it goes on."""
        return self.code is None and self.state in ("running", "paused", "restarting")


@dataclass(frozen=True)
class HostStatus:
    """A host: its runs' nodes, those that go on first, and its GPUs."""

    nodes: tuple[NodeStatus, ...]
    gpus: Gpus


@dataclass(frozen=True)
class HostRun:
    """A run as one host has it: its folder (`changed` in unix seconds, `bytes`), and its container where one is left.

    `checkpoint` is the last step saved there.
    """

    run: RunId
    changed: float | None = None
    bytes: int = 0
    checkpoint: int | None = None
    verdict: str = ""
    node: NodeStatus | None = None


def parse_runs(said: str) -> tuple[HostRun, ...]:
    """Read the answer to `look_commands.runs`. Folders that are no runs are passed over.

    Raises BadAnswer for what the host's engine or tools do not say.
    """
    rows = fields.rows(said)
    verdicts = _by_run(rows.get("verdict", ()))
    found: dict[RunId, HostRun] = {}
    for row in rows.get("folder", ()):
        cells = _FOLDER.fullmatch(row)
        if cells is None:
            raise BadAnswer("a run folder", "its name, time, size and last step", row)
        name, changed, kilobytes, last = cells.groups()
        for run in run_ids([name]) if changed and kilobytes else ():  # else it was removed meanwhile
            t, size = decimal(0, 1e11)(changed, "time"), digits(0, 1 << 50)(kilobytes, "size") * 1024
            found[run] = HostRun(run, t, size, _STEP(last, ""), _verdict(verdicts.get(run, [])))
    for node in _nodes(rows):
        found[node.run] = replace(found.get(node.run, HostRun(node.run)), node=node)
    return tuple(found[run] for run in sorted(found))


def parse(said: str) -> HostStatus:
    """Read the answer to `look_commands.status`.

    Raises DeployError where the engine did not answer, BadAnswer for what the host's engine or tools do not say. What
    ranks wrote is passed over where it cannot be read.
    """
    rows = fields.rows(said)
    if "engine-said" in rows:
        raise facts.engine_fault(rows["engine-said"][0])
    now = fields.default(decimal(0, 1e11), 0.0)(rows.get("time", [""])[0], "time")
    told = {word: _by_run(rows.get(word, ())) for word in ("event", "verdict", "said")}
    nodes = []
    for node in _nodes(rows):
        node = _with_steps(node, told["event"].get(node.run, []), now)
        node = replace(node, verdict=_verdict(told["verdict"].get(node.run, [])))
        nodes.append(_with_last_line(node, told["said"].get(node.run, []), now))
    nodes.sort(key=lambda node: (not node.runs, -(node.created or 0), node.run))
    return HostStatus(tuple(nodes), gpu_facts.parse(said.split("\n")))


def rate(node: NodeStatus, batch: int | None) -> float | None:
    """Samples a second of the whole run as this node sees it; `batch` is the run's global batch."""
    return batch * 1000 / node.step_ms if batch and node.step_ms else None


def _nodes(rows: Mapping[str, Sequence[str]]) -> list[NodeStatus]:
    """Lines of `scripts/each_container.sh`: run, container, and the cells as JSON; none of it where a line was torn."""
    lines = [line.split(" ", 2) for line in rows.get("node", ())]
    foreign = _by_run(rows.get("foreign", ()))
    found = []
    for run, cells in ((words[0], words[2]) for words in lines if len(words) == 3):
        if run not in foreign:
            found.append(_node(run, cells))
            continue
        with suppress(BadAnswer):  # others may label theirs as they like
            user = fields.words(64)(fields.document(foreign[run][0], "a user"), "a user")
            found.append(replace(_node(run, cells), user=user or "another user"))
    return found


def _node(run: str, said: str) -> NodeStatus:
    cells = _CELLS(fields.document(said, "a container"), "a container")
    state, uptime, created, name, place, command = cells
    exited = _EXITED.match(uptime)
    return NodeStatus(
        run=run_id(run, "the label muster.run"),
        node=node_name(name, "the label muster.node") if name else NodeName(""),
        place=place,
        command=command,
        state=state,
        uptime=uptime,
        code=int(exited[1]) if exited else FAILED if state == "dead" else None,
        created=_created(created),
    )


def _with_steps(node: NodeStatus, rows: Sequence[str], now: float) -> NodeStatus:
    """With what the ranks' own events say; those that cannot be read are passed over."""
    told = [event for row in rows if (event := _event(row, now))]
    last = {event["rank"]: event for event in told if event["kind"] == "step"}
    plan: Event = next((event for event in told if event["kind"] == "plan"), {})
    node = replace(node, batch=plan.get("batch"))
    if not last:
        return node
    slowest = min(last.values(), key=lambda event: event["step"])
    t = max(event["t"] for event in last.values())
    return replace(
        node,
        step=slowest["step"],
        steps=slowest.get("steps"),
        step_ms=slowest.get("step_ms"),
        step_age_s=round(max(0.0, now - t), 1),
    )


def _event(row: str, now: float) -> Event | None:
    try:
        return events.of_rank(fields.document(row, "an event", events.MOST_LINE), now)
    except BadAnswer:
        return None


def _with_last_line(node: NodeStatus, rows: Sequence[str], now: float) -> NodeStatus:
    for row in reversed(rows):
        stamp, _, text = row.partition(" ")
        t = parse_time(stamp)
        if t is not None and text.strip():
            return replace(node, said=text.rstrip("\r\n"), said_age_s=round(max(0.0, now - t), 1))
    return node


def parse_time(stamp: str) -> float | None:
    """Unix seconds of an engine's `2026-11-21T05:21:16.219120949Z`; None for anything else."""
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp[10:11] == "T" and stamp.isascii() else None
    except (ValueError, OverflowError):
        return None


def _created(text: str) -> float | None:
    """`2026-11-21 05:19:25 +0000 UTC` as docker ps writes it."""
    try:
        return datetime.strptime(text[:25], "%Y-%m-%d %H:%M:%S %z").astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def _verdict(rows: Sequence[str]) -> str:
    """The gravest of the ranks' verdicts."""
    found = {_WORD(facts.json_object(row).get("verdict"), "") for row in rows}
    return next((word for word in ("refused", "failed", "stopped", "done") if word in found), "")


def _by_run(rows: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        run, _, rest = row.partition(" ")
        found.setdefault(run, []).append(rest)
    return found
