"""Follow a run to its end: read whole new lines in its folder, look at its nodes, kill those that a stop does not end.

outcome.py says when it is over. The order matters: first the nodes, then the files. A node that has ended wrote its
verdict before.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from ..core.budget import Budget
from ..core.errors import BadAnswer
from ..core.facts import NodeState
from ..core.fields import document
from ..core.text import amount
from . import events as run_events
from .backend import Backend
from .events import Event
from .files import apart, own_files
from .outcome import Result, all_ended, concluded, final, judge, killed, left_early, stopped
from .progress import State

# At most this much of a file is read at once.
_PIECE = 2 << 20
# Of all files together. The events of all ranks are put in the order of their times, so this is more than a reader may
# hold otherwise. Of longer files the middle is left out; more documents wait for the next look.
_MOST_AT_ONCE, _MOST_FILES, _MOST_DOCUMENT = 32 << 20, 10_000, 128 << 10
# The nodes may take this long to end by themselves before we kill them.
AFTER_VERDICT_S = 15.0
AFTER_DONE_S = 60.0
AFTER_JUDGEMENT_S = 3.0
_AFTER_STOP_S, _AFTER_GRACE_S = 30.0, 10.0
# After so long between two looks this process was away: its laptop was closed, or Ctrl-Z has stopped it. The same holds
# where its clock was set back.
_AWAY_S = 30.0


class Follower:
    """Reads the new lines of the run folder's files: those written from now on, or all of them (`from_start`).

    `tail`: so many bytes at the end of each file as well. What is older than `since` is of earlier starts of the run.
    `of_hosts`: other machines wrote them.
    """

    def __init__(
        self, run_dir: Path, from_start: bool = False, tail: int = 0, since: float = 0.0, of_hosts: bool = False
    ) -> None:
        self._dir, self.since = run_dir, since
        self._verdict = run_events.verdict_of_host if of_hosts else run_events.verdict
        self._offsets: dict[str, int] = {}
        if not from_start:
            self._offsets = {path: max(0, size - tail) for path, size in self._line_files()}
        self._stamps: dict[str, int] = {}

    def read(self) -> list[Event]:
        """The events since the last call, in the order of time."""
        events: list[Event] = []
        new = [(path, size) for path, size in self._line_files() if size != self._offsets.get(path, 0)]
        budget = Budget()
        for path, size in new:
            events += self._new_events(Path(path), size, _MOST_AT_ONCE // len(new), budget)
        events += self._new_documents("nodes", run_events.node_up)
        events += self._new_documents("outcome", self._verdict)
        return sorted((event for event in events if event["t"] >= self.since), key=lambda event: float(event["t"]))

    def _line_files(self) -> list[tuple[str, int]]:
        """The files of events and numbers, with the size of each."""
        files = list[tuple[str, os.stat_result]]()
        for folder in apart.folders(self._dir):
            files += _files(folder / "ranks", ".jsonl", "rank-")
            files += _files(folder, ".jsonl", "metrics")
            files += _files(folder / "telemetry", ".jsonl")
            files += _files(folder / "scalars", ".jsonl")
        return [(path, stat.st_size) for path, stat in files[:_MOST_FILES]]

    def _new_lines(self, path: Path, start: int, end: int) -> Iterator[str]:
        """Read whole lines only: a line that is still being written comes with the next call. Raises OSError."""
        offset = start
        with own_files.open_to_read(self._dir, str(path.relative_to(self._dir))) as file:
            file.seek(offset)
            while new := file.read(min(_PIECE, end - offset)):
                whole = new[: new.rfind(b"\n") + 1]
                if not whole and len(new) == _PIECE:  # none of our lines is that long: count it as unread
                    whole = new[:-1] + b"\n"
                offset += len(whole)
                self._offsets[str(path)] = offset
                yield from whole.decode(errors="replace").split("\n")[:-1]
                if not whole:
                    return
                file.seek(offset)

    def _new_events(self, path: Path, size: int, most: int, budget: Budget) -> list[Event]:
        """The events of a file; of more than `most` bytes, those of the first and the last of them."""
        events, bad, now = list[Event](), 0, time.time()
        start = self._offsets.get(str(path), 0)
        start = 0 if size < start else start
        parts, left_out = [(start, size)], size - start - most
        if left_out > 0:
            parts = [(start, start + most // 2), (size - most // 2, size)]
            events += run_events.unread(1, f"{path.name}: {amount(left_out)} of what came at once", now)
        readers = {
            "ranks": run_events.of_rank,
            "telemetry": run_events.of_telemetry,
            "scalars": run_events.of_scalars,
        }
        within = len(path.relative_to(self._dir).parts) % 2 == 0  # `ranks/x`, or `hosts/<node>/ranks/x`
        read = readers.get(path.parent.name if within else "", run_events.of_metrics)
        try:
            for line in chain.from_iterable(self._new_lines(path, *part) for part in parts):
                budget.add(len(line) + 1)
                if budget.is_behind:
                    self._offsets[str(path)] = size
                    return events + run_events.unread(bad + 1, f"{path.name}: its lines take too much time", now)
                try:
                    events.append(read(document(line, path.name, run_events.MOST_LINE), now))
                except BadAnswer:  # a kill cut it, or a script wrote it; the next line is whole
                    bad += 1
        except OSError:  # somebody removed or replaced it while we looked, or lets only himself read it
            self._offsets[str(path)], bad = size, bad + 1
        return events + run_events.unread(bad, path.name, now)

    def _new_documents(self, folder: str, read: Callable[[object, float], Event]) -> Iterator[Event]:
        left = _MOST_AT_ONCE
        for path, stat in _files(self._dir / folder, ".json"):
            if self._stamps.get(path) == stat.st_mtime_ns or left < 0:
                continue
            left -= min(stat.st_size, _MOST_DOCUMENT)
            self._stamps[path] = stat.st_mtime_ns
            try:
                content = own_files.read(Path(path), _MOST_DOCUMENT)
                yield read(document(content, Path(path).name, _MOST_DOCUMENT), time.time())
            except FileNotFoundError:  # somebody removed it while we looked
                continue
            except (OSError, BadAnswer):
                yield from run_events.unread(1, f"{folder}/{Path(path).name}", time.time())


def _files(folder: Path, suffix: str, prefix: str = "") -> list[tuple[str, os.stat_result]]:
    """The files of a folder with such a name, in order; none if it is not there yet.

    A run is looked at ten times a second, and with Path.glob each look takes twice as long (0.4 ms instead of 0.2).
    """
    files = list[tuple[str, os.stat_result]]()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, _MOST_FILES):
            if entry.name.endswith(suffix) and entry.name.startswith(prefix) and not entry.name.startswith("."):
                with suppress(OSError):  # somebody removed it while we looked
                    if entry.is_file(follow_symlinks=False):
                        files.append((entry.path, entry.stat()))
    return sorted(files)


def follow(
    backend: Backend,
    follower: Follower,
    state: State,
    tell: Callable[[list[Event]], None],
    stop_requests: Callable[[], int],
    passed: Callable[[], Sequence[signal.Signals]] = tuple,
) -> Result:
    """Follow until every node has ended or was killed. Returns how the run ended.

    `tell` gets the new events after each look; `stop_requests` returns how often the user pressed Ctrl-C.
    `passed`: signals for the ranks that have come since the last look.
    """
    watch, began = _Watch(backend, state, stop_requests), time.time()
    while True:
        nodes = backend.states(state)
        for number in passed():
            backend.pass_on(number)
        # Files come before the ends of nodes: a node writes its reason before it ends.
        events = [*follower.read(), *changes(nodes, state)]
        now = time.time()
        for event in events:
            state.apply(event, now)
        state.inquire(now)
        left = [{"kind": "left", "t": time.time(), "rank": rank} for rank in left_early(state, time.time(), began)]
        for event in left:
            state.apply(event)
        tell([*events, *left, *backend.output(state)])
        result = watch.step(time.time())
        if result is not None:
            return concluded(result, state.case.finding)
        time.sleep(backend.look_s)


class _Watch:
    """Ends a run. Once a verdict or a judgement says that it is over, the nodes get time to end; then we kill them."""

    def __init__(self, backend: Backend, state: State, stop_requests: Callable[[], int]) -> None:
        self._backend, self._state, self._stop_requests = backend, state, stop_requests
        self._started_at = self._looked_at = time.time()
        self._result: Result | None = None
        self._stopping, self._stopped_at = False, 0.0
        self._deadline = float("inf")

    def step(self, now: float) -> Result | None:
        """Judge the run again. Returns the result once no node runs any more."""
        if not 0 <= (away_s := now - self._looked_at) <= _AWAY_S:
            self._pass_over(away_s, now)
        self._looked_at, requests = now, self._stop_requests()
        if requests and not self._stopping:
            self._stopping = True
            self._backend.stop()
            self._stopped_at, self._deadline = now, now + stop_patience_s(0.0)
        if self._stopping and self._result is None:  # the nodes say how long their ranks may take to save
            self._deadline = max(self._deadline, self._stopped_at + stop_patience_s(self._state.nodes.grace_s))
        if self._result is None or (not self._result.from_ranks and self._state.verdicts):
            self._settle(judge(self._state, self._started_at, now), now)
        if all_ended(self._state) and (self._result or self._stopping):
            return self._final() or stopped(self._state)
        if requests > 1 or now >= self._deadline:
            self._backend.kill()
            return self._final() or killed(self._state, None if requests > 1 else now - self._stopped_at)
        return None

    def _pass_over(self, away_s: float, now: float) -> None:
        """Count no time in which nobody looked: what the hosts have told meanwhile is still on its way."""
        case, self._state.ranks.last_sign = self._state.case, now
        self._started_at, self._deadline = self._started_at + away_s, self._deadline + away_s
        self._stopped_at += away_s
        case.found_at, case.cut.t = case.found_at + away_s, case.cut.t + away_s

    def _final(self) -> Result | None:
        """The result, with the verdicts that arrived since."""
        return final(self._state) if self._result and self._result.from_ranks else self._result

    def _settle(self, result: Result | None, now: float) -> None:
        if result is None or (self._stopping and not result.from_ranks):
            return
        if self._result and result.verdict in ("stopped", "done"):
            return  # the remaining nodes only stop because we asked them to, after the known fault
        self._result = result
        if result.verdict == "done":
            patience = AFTER_DONE_S
        elif result.from_ranks:  # every rank knows and is ending; a signal would only disturb it
            patience = AFTER_VERDICT_S
        else:
            patience = AFTER_JUDGEMENT_S
            self._backend.stop()
        self._deadline = min(self._deadline, now + patience)


def stop_patience_s(grace_s: float) -> float:
    """How long nodes that were asked to stop may take, whose ranks get `grace_s` to save (0: as usual)."""
    return max(_AFTER_STOP_S, grace_s + _AFTER_GRACE_S)


def changes(nodes: list[NodeState], state: State) -> list[Event]:
    """What changed of the nodes since the state heard of them, as events."""
    return [
        {"kind": "node", "t": time.time(), **vars(node)} for node in nodes if state.nodes.states.get(node.node) != node
    ]
