"""Turn what ranks print into events of the kind `output`: from a node's console, or the ranks' logs on this machine.

These events are for a person who watches, so a flood is cut here; the logs have every line. contract.md describes the
marks that an agent puts in front of a line.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..core.printable import plain, without_redraws
from .events import Event
from .files import own_files
from .state.ranks import by_node

# How many lines are shown between two looks; a person does not read faster.
MOST_LINES = 200
# How much of a log one look reads at most; what came before is still in the log.
_MOST_BYTES = 64 << 10
_LINE_MOST = 16 << 10
_TORCHRUN = "torchrun: "
_MARK = re.compile(r"\[rank([0-9]{1,9})\]: ?")


class ConsoleLines:
    """Lines from the nodes' consoles, kept until the next look. Any thread may add lines."""

    def __init__(self) -> None:
        self._lines = deque[tuple[str, str, float]](maxlen=MOST_LINES)
        self._put, self._lock = 0, threading.Lock()

    def put(self, node: str, words: str, t: float) -> None:
        """Add one line from a node's console, which was printed at `t`."""
        with self._lock:
            self._lines.append((node, words, t))
            self._put += 1

    def take(self, began: Mapping[int, str]) -> list[Event]:
        """The lines since the last call. `began`: each rank's node. A node's lines wait until a rank of it begins."""
        ranks = by_node(began)
        with self._lock:
            lines, missing = list(self._lines), self._put - len(self._lines)
            self._lines.clear()
            self._lines.extend(line for line in lines if line[0] not in ranks)
            self._put = len(self._lines)
        shown = [_event(node, words, ranks[node], t) for node, words, t in lines if node in ranks]
        return _left_out(missing, min((line["t"] for line in shown), default=time.time())) + shown


class RankLogs:
    """Reads what is appended from now on to logs/rank-<r>.log in a run folder on this machine."""

    def __init__(self, run_dir: Path) -> None:
        self._dir = run_dir
        self._offsets = {path.name: _size(path) for path in run_dir.glob("logs/rank-*.log")}
        self._drawn = dict[str, str]()

    def take(self, began: Mapping[int, str]) -> list[Event]:
        """The output since the last call: whole lines, and the latest state of a progress bar."""
        new_events = []
        for rank, node in sorted(began.items()):
            path = self._dir / "logs" / f"rank-{rank}.log"
            with suppress(OSError):
                new_events += self._new(path, rank, node)
        return new_events

    def _new(self, path: Path, rank: int, node: str) -> list[Event]:
        offset, size, now = self._offsets.get(path.name, 0), _size(path), time.time()
        if size == offset:
            return []
        offset = 0 if size < offset else offset
        start = max(offset, size - _MOST_BYTES)
        with own_files.open_to_read(self._dir, f"logs/{path.name}") as file:
            file.seek(start)
            text = without_redraws(file.read(size - start).decode("latin-1"))  # a letter for each byte
        whole, end, rest = text.rpartition("\n")
        if not end and len(rest) < _LINE_MOST:
            self._offsets[path.name] = start
            drawn = _last_drawn(rest)
            moved = "\r" in rest and drawn != self._drawn.get(path.name)
            self._drawn[path.name] = drawn
            return [_event(node, f"\r{drawn}", [rank], now)] if moved else []
        self._offsets[path.name] = size - len(rest) if end else size
        lines = [_last_drawn(line) for line in (whole if end else rest).split("\n")]
        if start > offset:  # the lines before `start` were not counted, and the first line here may be cut
            left_out, lines = _left_out(None, now), lines[1:]
        else:
            left_out = _left_out(len(lines[:-MOST_LINES]), now)
        return left_out + [_event(node, line, [rank], now) for line in lines[-MOST_LINES:]]


def rank_of(words: str, ranks: Sequence[int]) -> tuple[int | None, str]:
    """The rank that printed a console line (None: no rank), and the line without its mark.

    `ranks`: the ranks of the node. The agent marks every line, unless the node has only one rank.
    """
    mark = _MARK.match(words)
    if mark and int(mark[1]) in ranks:
        return int(mark[1]), words[mark.end() :]
    return (ranks[0] if len(ranks) == 1 and not words.startswith(_TORCHRUN) else None), words


def _event(node: str, words: str, ranks: Sequence[int], now: float) -> Event:
    rank, words = rank_of(words, ranks)
    moving = words.startswith("\r")
    return {"kind": "output", "t": now, "node": node, "rank": rank, "line": words.strip("\r"), "moving": moving}


def _left_out(count: int | None, now: float) -> list[Event]:
    """The event that reports how many lines are not shown; `count` None: they were not counted."""
    return [] if count == 0 else [{"kind": "output_left_out", "t": now, "lines": count}]


def _last_drawn(line: str) -> str:
    shown = plain(line.encode("latin-1").decode(errors="replace"))
    return next((text for text in reversed(shown.split("\r")) if text.strip()), "")


def _size(path: Path) -> int:
    with suppress(OSError):
        return os.stat(path, follow_symlinks=False).st_size
    return 0
