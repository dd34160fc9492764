"""Sets aside files from earlier starts of a script when a later start begins anew and would overwrite them.

A start that loads no checkpoint is noticed at its first step (trainer/node/rank/steps/watcher.py), long before most
scripts save again. The copies are in `earlier/<number>/` of the run folder, where the script does not see them.
Standard library only.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..ending.rank_lives import Life
from ..notes import Journal
from . import work

EARLIER = "earlier"
_LOOK_SECONDS = 0.5
# This share of the free disk space is left to the script, which is about to save again.
_SHARE = 0.5
# A hanging disk must not delay the end of a run for longer.
_FINISH_SECONDS = 10.0


class Earlier:
    """Notices when a start begins anew, and copies what earlier starts left. `tell` receives the fields of an event."""

    def __init__(self, outcome: Path, run_folder: Path | None, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._journal, self._run_folder, self._tell = Journal(outcome), run_folder, tell
        self._is_anew, self._next = False, 0.0
        self._copying: threading.Thread | None = None

    def look(self, lives: Sequence[Life]) -> None:
        """Start to copy if a rank of this start has begun anew since the last look."""
        now = time.monotonic()
        if not self._run_folder or now < self._next or (self._copying and self._copying.is_alive()):
            return
        self._next = now + _LOOK_SECONDS
        self._is_anew = any("anew" in row for row in self._journal.read()) or self._is_anew
        running = [life.began for life in lives if life.code is None]
        if self._is_anew and running:
            self._is_anew = False
            self._copying = threading.Thread(target=self._copy, args=(self._run_folder, min(running)), daemon=True)
            self._copying.start()

    def finish(self) -> None:
        """Wait a while for a copy that is in progress; each file is copied completely or not at all."""
        if self._copying:
            self._copying.join(_FINISH_SECONDS)

    def _copy(self, run_folder: Path, began: float) -> None:
        try:
            about = keep_earlier_files(run_folder, began)
        except OSError as fault:
            about = {"files": 0, "bytes": 0, "place": "", "message": fault.strerror or str(fault)}
        with suppress(OSError):
            if about:
                self._tell(about)


def keep_earlier_files(run_folder: Path, began: float) -> dict[str, Any]:
    """Copy what the script had written before `began`, in unix seconds; returns the fields of the event `put_aside`.

    Empty if there is nothing to copy, or if another node of this machine has copied it. Raises OSError, and then leaves
    no copy.
    """
    with work.locked(run_folder):
        home = run_folder / EARLIER
        made = sorted(home.iterdir(), key=lambda path: path.stat().st_mtime) if home.is_dir() else []
        if made and made[-1].stat().st_mtime >= began:
            return {}
        files = [(path, status) for path, status in work.own_files(run_folder) if status.st_mtime < began]
        size = sum(status.st_size for _, status in files)
        if not files:
            return {}
        if size > _SHARE * shutil.disk_usage(run_folder).free:
            return {"files": len(files), "bytes": size, "place": "", "message": "the disk has too little space"}
        goal = home / str(1 + max((int(path.name) for path in made if path.name.isdecimal()), default=0))
        goal.mkdir(parents=True)
    try:
        sizes = list(_copied(run_folder, goal, files))
    except OSError:
        shutil.rmtree(goal, ignore_errors=True)
        raise
    whole = {"files": len(sizes), "bytes": sum(sizes), "place": f"{EARLIER}/{goal.name}"}
    missed = len(files) - len(sizes)
    return {**whole, "message": f"{missed} of them were overwritten in the meantime"} if missed else whole


def _copied(run_folder: Path, goal: Path, files: Sequence[tuple[str, os.stat_result]]) -> Iterator[int]:
    """Copy each file completely or not at all; yields the size of each file that did not change meanwhile."""
    part = goal / ".part"
    for path, before in files:
        with suppress(FileNotFoundError):
            shutil.copy2(run_folder / path, part, follow_symlinks=False)
            now = (run_folder / path).lstat()
            if (now.st_mtime_ns, now.st_size, now.st_ino) == (before.st_mtime_ns, before.st_size, before.st_ino):
                (goal / path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(part, goal / path)
                yield before.st_size
        part.unlink(missing_ok=True)
