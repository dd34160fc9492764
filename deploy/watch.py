"""Follow a run: what is new in its folder, how its nodes stand, and with ending.py when it is over.

The order matters: nodes first, files after. A node that has ended wrote its verdict before.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from deploy.ending import Result, all_ended, from_verdicts, judge, killed, stopped
from deploy.facts import NodeState
from deploy.progress import Event, State

POLL_S = 0.1
# How long nodes may take to end by themselves before they are killed.
AFTER_VERDICT_S = 15.0
AFTER_DONE_S = 60.0
AFTER_JUDGEMENT_S = 3.0
AFTER_STOP_S = 30.0

# torchrun's elastic agent, on the console of the node whose rank it was.
_DIED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")


class Ground(Protocol):
    """What following needs of a ground."""

    def states(self, state: State) -> list[NodeState]:
        """How each node stands."""

    def stop(self) -> None:
        """Ask every node to stop; returns at once."""

    def kill(self) -> None:
        """End every node now."""


class Follower:
    """Reads the run folder's new lines, from where its files ended when the run was started; or `from_start` on."""

    def __init__(self, run_dir: Path, from_start: bool = False) -> None:
        self._dir = run_dir
        self._offsets = {} if from_start else {path: path.stat().st_size for path in self._line_files()}
        self._seen: dict[Path, int] = {}

    def read(self) -> list[Event]:
        """Events since the last call, by time."""
        events: list[Event] = []
        for path in self._line_files():
            events += [event for line in self._new_lines(path) if (event := self._parse(path, line))]
        events += self._new_documents("nodes", "node_up")
        events += self._new_documents("outcome", "verdict")
        return sorted(events, key=lambda event: float(event["t"]))

    def _line_files(self) -> list[Path]:
        return [
            *sorted(self._dir.glob("ranks/rank-*.jsonl")),
            *self._dir.glob("metrics.jsonl"),
            *(path for path in sorted(self._dir.glob("logs/*.log")) if not path.name.startswith("rank-")),
        ]

    def _new_lines(self, path: Path) -> Iterator[str]:
        """Whole lines only: the rest of a line that is still being written comes with the next call."""
        offset = self._offsets.get(path, 0)
        size = path.stat().st_size
        if size < offset:
            offset = 0
        if size == offset:
            return
        with path.open("rb") as file:
            file.seek(offset)
            new = file.read(size - offset)
        whole = new[: new.rfind(b"\n") + 1]
        self._offsets[path] = offset + len(whole)
        yield from whole.decode(errors="replace").splitlines()

    def _parse(self, path: Path, line: str) -> Event | None:
        if path.suffix == ".log":
            found = _DIED.search(line)
            if not found:
                return None
            code, _, pid = (int(group) for group in found.groups())
            return {"kind": "died", "t": time.time(), "node": path.stem, "code": code, "pid": pid}
        try:
            event = json.loads(line)
        except ValueError:  # torn by a kill; what it said is lost, the next line is whole
            return None
        if not isinstance(event, dict):
            return None
        event.setdefault("t", time.time())
        return event if path.parent.name == "ranks" else {"kind": "metrics", **event}

    def _new_documents(self, folder: str, kind: str) -> Iterator[Event]:
        for path in sorted(self._dir.glob(f"{folder}/[!.]*.json")):
            try:
                stamp = path.stat().st_mtime_ns
                if self._seen.get(path) == stamp:
                    continue
                content = json.loads(path.read_text())
            except (OSError, ValueError):  # taken away or replaced while we looked
                continue
            self._seen[path] = stamp
            yield {"t": time.time(), **content, "kind": kind}


def follow(
    ground: Ground,
    follower: Follower,
    state: State,
    tell: Callable[[list[Event]], None],
    stop_requests: Callable[[], int],
) -> Result:
    """Follow until every node has ended or was killed; returns how the run ended.

    `tell` gets the new events after each look; `stop_requests` counts the user's Ctrl-C.
    """
    watch = _Watch(ground, state, stop_requests)
    while True:
        events = [*_changes(ground.states(state), state), *follower.read()]
        for event in events:
            state.apply(event)
        tell(events)
        result = watch.step(time.time())
        if result is not None:
            return result
        time.sleep(POLL_S)


class _Watch:
    """The end of a run: first somebody says it is over, then the nodes get time to end, then they are killed."""

    def __init__(self, ground: Ground, state: State, stop_requests: Callable[[], int]) -> None:
        self._ground, self._state, self._stop_requests = ground, state, stop_requests
        self._started_at = time.time()
        self._result: Result | None = None
        self._stopping = False
        self._deadline = float("inf")

    def step(self, now: float) -> Result | None:
        """Judge once more; the result once nothing runs any more."""
        requests = self._stop_requests()
        if requests and not self._stopping:
            self._stopping = True
            self._ground.stop()
            self._deadline = now + AFTER_STOP_S
        if self._result is None or (not self._result.from_ranks and self._state.verdicts):
            self._settle(judge(self._state, self._started_at, now), now)
        if all_ended(self._state) and (self._result or self._stopping):
            return self._final() or stopped(self._state)
        if requests > 1 or now >= self._deadline:
            self._ground.kill()
            return self._final() or killed(self._state, None if requests > 1 else AFTER_STOP_S)
        return None

    def _final(self) -> Result | None:
        """The result with what other nodes have said since."""
        return from_verdicts(self._state.verdicts) if self._result and self._result.from_ranks else self._result

    def _settle(self, result: Result | None, now: float) -> None:
        if result is None or (self._stopping and not result.from_ranks):
            return
        self._result = result
        if result.verdict == "done":
            patience = AFTER_DONE_S
        elif result.from_ranks:  # every rank knows; a signal now would only hit them on their way out
            patience = AFTER_VERDICT_S
        else:
            patience = AFTER_JUDGEMENT_S
            self._ground.stop()
        self._deadline = min(self._deadline, now + patience)


def _changes(nodes: list[NodeState], state: State) -> list[Event]:
    return [
        {
            "kind": "node",
            "t": time.time(),
            "node": node.node,
            "state": node.state,
            "code": node.code,
            "restarts": node.restarts,
        }
        for node in nodes
        if state.nodes.get(node.node) != node
    ]
