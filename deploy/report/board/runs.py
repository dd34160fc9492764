"""The rows of the board: what each run folder has about its run, from the ends of its files. No file is read whole.

Flow: runs/ -> `Runs.rows` -> JSON -> templates/board.js. Containers and hosts write these files, so each file, and each
run's folder, is read without following links.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from ...core import text as words
from ...core.fields import object_or_empty
from ...core.names import RunId, run_ids
from ...job.script import as_typed
from ...run.files import code, own_files, record, recorded_ends, standing
from ...run.files.standing import RUNNING, UNFINISHED, Signature, Standing, newest, signature, whole_signature
from ..page.data import number
from ..page.head import state_of
from ..tables import ENDED

# A run that has ended, or whose files have not changed for _STILL_S, is looked at only once in _STILL_EVERY_S.
_STILL_S, _STILL_EVERY_S = 600.0, 10.0
# How many runs are listed (the newest); how many characters of a text and how many hosts a row shows.
MOST_RUNS, MOST_WORDS, MOST_HOSTS = 2000, 200, 4
# The points of a sparkline; the bytes read at the end of a file; the files looked at in each folder.
_POINTS, _TAIL = 12, 16 << 10
_MOST_S = 0.4  # the time that a look spends on runs that were never read; the next look continues with them
Row = dict[str, Any]
Live = Callable[[], Collection[str]]


class RemoteRuns(Protocol):
    """Runs that are on hosts. `faults`: why some are not known. `looked_at`: when a browser last asked the board."""

    faults: list[str]
    looked_at: float

    def rows(self) -> list[Row]:
        """A row for each run on the hosts."""


class Runs:
    """The runs in a folder. A run's row is read again when its files have changed.

    `unread`: how many older runs the last look had no time for. `live`: as in standing.of.
    """

    def __init__(self, folder: Path, live: Live = tuple) -> None:
        self.folder, self.unread, self._live = folder, 0, live
        self._known: dict[str, tuple[Signature, float, Row]] = {}

    def rows(self, now: float) -> list[Row]:
        """A row for each run, newest first."""
        names, until = self._names(), time.monotonic() + _MOST_S
        live = cache(self._live)  # it asks the engine, and all files of a folder that was just copied are new
        read = (name for name in names if name in self._known or time.monotonic() < until)
        known = {str(name): self._row(name, now, live) for name in read}
        self._known, self.unread = known, len(names) - len(known)
        return newest_first(row for _, _, row in known.values())

    def find(self, name: str) -> Path | None:
        """The folder of a run here; None if there is no such run, or if it is a link."""
        path = self.folder / name
        return path if run_ids([name]) and path.is_dir() and not path.is_symlink() else None

    def _names(self) -> list[RunId]:
        with suppress(OSError), os.scandir(self.folder) as entries:
            names = run_ids(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            return sorted(names, reverse=True)[:MOST_RUNS]
        return []

    def _row(self, name: str, now: float, live: Live) -> tuple[Signature, float, Row]:
        run_dir, before = self.folder / name, self._known.get(name)
        if (
            before
            and abs(now - before[1]) < _STILL_EVERY_S
            and (before[2]["ended"] or now - before[2]["seen"] > _STILL_S)
        ):
            return before
        seen = signature(run_dir)
        row = before[2] if before and before[0] == seen else _read(run_dir, seen)
        if not row["ended"]:
            row = {**row, "seen": max(row["seen"], newest(whole_signature(run_dir)))}
        standing_now = standing.of(run_dir, row["verdict"], live, now)
        return seen, now, {**row, "live": standing_now.is_live, "ask": standing_now.ask, **state_of(standing_now)}


def newest_first(rows: Iterable[Row]) -> list[Row]:
    """The rows in the order of the list: newest first."""
    return sorted(rows, key=lambda row: (-(row["started"] or 0.0), row["id"]))


def row_elsewhere(value: Mapping[str, Any], command: str) -> Row:
    """The row of a run that is only on hosts, from its tables.run_values; `command` copies it here."""
    ended, live = value["state"] in ENDED - {UNFINISHED}, value["state"] not in ENDED
    verdict = value["state"] if ended else ""
    return {
        "id": value["run"],
        "verdict": verdict,
        "ended": ended,
        "live": live,
        **state_of(Standing(verdict or (RUNNING if live else UNFINISHED))),
        "step": value["checkpoint"],
        "hosts": words.listed(value["hosts"], MOST_HOSTS),
        "started": value["changed"],
        "seen": value["changed"] or 0.0,
        "command": command,
    }


def _read(run_dir: Path, seen: Signature) -> Row:
    known, end = record.facts(run_dir), recorded_ends.end_of(run_dir)
    starts = known.get("starts") or [{}]
    started = starts[-1].get("t") or known.get("started")
    hosts = known.get("hosts") or known.get("nodes") or []
    losses, last = _losses(run_dir), _last(run_dir, "ranks/rank-0.jsonl", "step")
    last_sign = newest(seen[3:])
    seconds = end.get("seconds")
    if seconds is None and started and last_sign:
        seconds = max(0.0, last_sign - started)
    step = end.get("step") or number(last.get("step")) or (losses[-1][0] if losses else None)
    return {
        "id": run_dir.name,
        "verdict": _short(end.get("verdict", "")),
        "ended": bool(end),
        "message": _short(end.get("message", "")).partition("\n")[0],
        "script": _short(as_typed(known.get("arguments", ())) or run_dir.name),
        "hosts": words.listed(map(_short, hosts), MOST_HOSTS),
        "started": started,
        "seconds": seconds,
        "took": "" if seconds is None else words.duration(seconds),
        "step": step,
        "steps": number(last.get("steps")),
        "loss": losses[-1][1] if losses else None,
        "loss_words": words.figure(losses[-1][1]) if losses else "",
        "losses": [loss for _, loss in losses],
        "commit": _commit(run_dir),
        "who": known.get("user", ""),
        "seen": last_sign,
    }


def _short(value: object) -> str:
    return words.shortened(str(value), MOST_WORDS)


def _commit(run_dir: Path) -> str:
    known = code.read(run_dir, whole=False)
    return "" if known is None else _short(known.commit[:10]) + ("+" if known.dirty else "")


def _losses(run_dir: Path) -> list[tuple[float, float]]:
    """Step and loss at some places in metrics.jsonl, including the last; without steps that a later start repeated."""
    rows = []
    with suppress(OSError):
        rows = [*map(_row_of, own_files.sample(run_dir, "metrics.jsonl", _POINTS, _TAIL))]
    rows.append(_last(run_dir, "metrics.jsonl", "loss"))
    points = list[tuple[float, float]]()
    for step, loss in ((number(row.get("step")), number(row.get("loss"))) for row in rows):
        if step is not None and loss is not None:
            while points and points[-1][0] >= step:
                points.pop()
            points.append((step, loss))
    return points


def _last(run_dir: Path, name: str, field: str) -> Row:
    """The last line about a step that has a number in `field`; empty if there is none near the file's end."""
    with suppress(OSError):
        end, before = own_files.read_end(run_dir, name, _TAIL)
        lines = end.split(b"\n")[1 if before else 0 : -1]
        about = (row for row in map(_row_of, reversed(lines)) if row.get("kind", "step") == "step")
        return next((row for row in about if number(row.get(field)) is not None), {})
    return {}


def _row_of(line: bytes) -> Row:
    return object_or_empty(line.decode(errors="replace"))
