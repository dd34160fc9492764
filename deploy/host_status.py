"""What runs on a host and how far it is, as frozen values, and the reader of what the host says of it. Pure.

deploy_look.py asks (`look_commands.status`); look_lines.py puts it in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from deploy import gpu_facts, host_facts
from deploy.gpu_facts import Gpus

_EXITED = re.compile(r"Exited \((\d+)\)")


@dataclass(frozen=True)
class NodeStatus:
    """A run's node on one host. Numbers are None, texts empty, where the run does not say: a script of the user's.

    `state` and `uptime` ("Up 3 minutes") are the engine's words, `code` the exit code. `step` is that of the slowest
    rank here, `step_ms` its mean, `step_age_s` how long ago it said so; `batch` (global) is known where rank 0 is.
    `verdict` is the ranks' own. `said` is the console's last line, `said_age_s` how old it is.
    """

    run: str
    node: str
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

    run: str
    changed: float | None = None
    bytes: int = 0
    checkpoint: int | None = None
    verdict: str = ""
    node: NodeStatus | None = None


def parse_runs(said: str) -> tuple[HostRun, ...]:
    """Read the answer to `look_commands.runs`."""
    rows = [(word, rest) for word, _, rest in (line.partition(" ") for line in said.split("\n"))]
    verdicts = _by_run([rest for word, rest in rows if word == "verdict"])
    found: dict[str, HostRun] = {}
    for word, rest in rows:
        run, *cells = rest.split(" ")
        if word == "folder" and len(cells) == 3 and cells[0].isdigit() and cells[1].isdigit():
            step = int(cells[2]) if cells[2].isdigit() else None
            found[run] = HostRun(run, float(cells[0]), int(cells[1]) * 1024, step, _verdict(verdicts.get(run, [])))
    for rest in (rest for word, rest in rows if word == "node"):
        run, _, cells_text = rest.partition(" ")
        node = _node(run, cells_text.partition(" ")[2])
        if node:
            found[run] = replace(found.get(run, HostRun(run)), node=node)
    return tuple(found[run] for run in sorted(found))


def parse(said: str) -> HostStatus:
    """Read the answer to `look_commands.status`. Raises DeployError where the engine did not answer."""
    rows: dict[str, list[str]] = {}
    for line in said.split("\n"):  # not splitlines: a progress bar's line has carriage returns in it
        word, _, value = line.partition(" ")
        rows.setdefault(word, []).append(value)
    if "engine-said" in rows:
        raise host_facts.engine_fault(rows["engine-said"][0])
    now = float(rows.get("time", ["0"])[0] or 0)
    told = {word: _by_run(rows.get(word, ())) for word in ("event", "verdict", "said")}
    nodes = []
    for row in rows.get("node", ()):
        run, _, rest = row.partition(" ")
        node = _node(run, rest.partition(" ")[2])
        if node:
            node = _with_steps(node, told["event"].get(run, []), now)
            node = replace(node, verdict=_verdict(told["verdict"].get(run, [])))
            nodes.append(_with_last_line(node, told["said"].get(run, []), now))
    nodes.sort(key=lambda node: (not node.runs, -(node.created or 0), node.run))
    return HostStatus(tuple(nodes), gpu_facts.parse(said.split("\n")))


def rate(node: NodeStatus, batch: int | None) -> float | None:
    """Samples a second of the whole run as this node sees it; `batch` is the run's global batch."""
    return batch * 1000 / node.step_ms if batch and node.step_ms else None


def _node(run: str, cells: str) -> NodeStatus | None:
    try:
        state, uptime, created, name, place, command = json.loads(cells)
    except (ValueError, TypeError):
        return None
    exited = _EXITED.match(uptime)
    return NodeStatus(
        run=run,
        node=name,
        place=int(place) if place.isdigit() else 0,
        command=command,
        state=state,
        uptime=uptime,
        code=int(exited[1]) if exited else 1 if state == "dead" else None,
        created=_created(created),
    )


def _with_steps(node: NodeStatus, rows: Sequence[str], now: float) -> NodeStatus:
    events = [event for row in rows if isinstance(event := _json(row), dict)]
    last = {event.get("rank"): event for event in events if event.get("kind") == "step"}
    plan = next((event for event in events if event.get("kind") == "plan"), {})
    node = replace(node, batch=_of(plan, "batch", int))
    if not last:
        return node
    slowest = min(last.values(), key=lambda event: _of(event, "step", int) or 0)
    t = max(_of(event, "t", float) or 0.0 for event in last.values())
    return replace(
        node,
        step=_of(slowest, "step", int),
        steps=_of(slowest, "steps", int),
        step_ms=_of(slowest, "step_ms", float),
        step_age_s=round(max(0.0, now - t), 1),
    )


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
        return datetime.fromisoformat(stamp).timestamp() if stamp[10:11] == "T" else None
    except ValueError:
        return None


def _created(text: str) -> float | None:
    """`2026-11-21 05:19:25 +0000 UTC` as docker ps writes it."""
    try:
        return datetime.strptime(text[:25], "%Y-%m-%d %H:%M:%S %z").astimezone(UTC).timestamp()
    except ValueError:
        return None


def _verdict(rows: Sequence[str]) -> str:
    """The gravest of the ranks' verdicts."""
    found = {str(value.get("verdict", "")) for row in rows if isinstance(value := _json(row), dict)}
    return next((word for word in ("refused", "failed", "stopped", "done") if word in found), "")


def _by_run(rows: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        run, _, rest = row.partition(" ")
        found.setdefault(run, []).append(rest)
    return found


def _of(event: dict[str, Any], name: str, kind: Callable[[Any], Any]) -> Any:
    try:
        return kind(event[name])
    except (KeyError, TypeError, ValueError):
        return None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
