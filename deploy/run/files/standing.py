"""The one word for a run in lists, on pages and on the board: how it ended, or what this machine knows about it now.

A command that starts or follows a run holds the lock of the run's folder, so a run whose lock is held is going on. Of a
run elsewhere that no command here follows, this machine knows nothing: then the word says since when, and which command
asks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...job.option_words import command_of
from . import locks, record

# A run without a verdict. STARTING: its command has not started its nodes yet; UNFINISHED: it ended, and no command
# recorded how; UNKNOWN: only its hosts can tell.
RUNNING, STARTING, UNFINISHED, UNKNOWN = "running", "starting", "unfinished", "unknown"
# Files of a run count as new if they were written within this time: its agents write every few seconds.
FRESH_S = 60.0
# The files that the board's list reads; the folders whose files nodes write, and how many of each are looked at.
_FILES = ("record.json", "outcome.json", "code.json", "metrics.jsonl", "ranks/rank-0.jsonl")
_NODE_FOLDERS, _LOOKED_AT = ("ranks", "telemetry", "nodes", "logs", "scalars", "outcome"), 200
Signature = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Standing:
    """The word for a run. If it is UNKNOWN, `since`: the last sign of it here (Unix seconds); `ask`: who can tell."""

    word: str
    since: float = 0.0
    ask: str = ""

    @property
    def shown(self) -> str:
        """The word, with the time if it is UNKNOWN: `unknown since 14:05`, or with the date if that is not today."""
        if not self.since:
            return self.word
        at, now = time.localtime(self.since), time.localtime()
        return f"{self.word} since {time.strftime('%H:%M' if at[:3] == now[:3] else '%Y-%m-%d %H:%M', at)}"

    @property
    def is_live(self) -> bool:
        """Whether the run is going on."""
        return self.word in (RUNNING, STARTING)


def of(run_dir: Path, verdict: str = "", live: Callable[[], Collection[str]] = tuple, now: float = 0.0) -> Standing:
    """What is known about a run. `verdict`: the recorded one.

    `live`: which runs have nodes on this machine. It is asked only if the command that drove the run has gone, and
    files are still new: the run's containers may have outlived that command. `now`: in Unix seconds.
    """
    if verdict:
        return Standing(verdict)
    known = record.facts(run_dir)
    if locks.is_held(run_dir / ".lock"):
        return Standing(RUNNING if known.get("starts") else STARTING)
    seen, here = newest(whole_signature(run_dir)), is_of_this_machine(run_dir)
    is_fresh = abs((now or time.time()) - seen) < FRESH_S
    if known.get("backend") in (record.HOSTS, record.SLURM):
        here = False
    elif is_fresh and (not here or run_dir.name in live()):
        return Standing(RUNNING)
    return Standing(UNFINISHED) if here else Standing(UNKNOWN, seen, _who_can_tell(run_dir))


def is_of_this_machine(run_dir: Path) -> bool:
    """Whether the run was started on this machine: several machines may share a folder. An older record counts so."""
    return record.facts(run_dir).get("machine") in (None, record.this_machine())


def _who_can_tell(run_dir: Path) -> str:
    """A command that asks whether the run is going on; empty if another user recorded it, who may have written any."""
    own = record.own_fields(run_dir)
    if own.get("backend") == record.HOSTS and own.get("hosts"):
        return command_of("status", hosts=",".join(own["hosts"]))
    return command_of("status", run=run_dir.name) if own.get("backend") == record.SLURM else ""


def signature(run_dir: Path) -> Signature:
    """When the files that the board's list reads of a run were written, and how long they are."""
    return tuple(_stat(run_dir / name) for name in _FILES)


def whole_signature(run_dir: Path) -> Signature:
    """When all files that a run's page reads were written, and how long they are."""
    return (*signature(run_dir), *map(_stat, _files_of_nodes(run_dir)))


def newest(seen: Signature) -> float:
    """When the newest of these files was written, in Unix seconds; 0 if there are none."""
    return max((moment for moment, _ in seen), default=0) / 1e9


def _files_of_nodes(run_dir: Path) -> Iterator[str]:
    for folder in _NODE_FOLDERS:
        with suppress(OSError), os.scandir(run_dir / folder) as entries:
            yield from (entry.path for _, entry in zip(range(_LOOKED_AT), entries, strict=False))
    yield str(run_dir / "timeline.jsonl")


def _stat(path: str | Path) -> tuple[int, int]:
    try:
        about = os.stat(path, follow_symlinks=False)
    except OSError:
        return 0, 0
    return about.st_mtime_ns, about.st_size
