"""A node's time limits: --max-hours, from its first start on, and --grace, which node.py waits after a stop request.

Standard library only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from muster.files import read, replace

HOURS = "MUSTER_MAX_HOURS"
USUAL_GRACE_S, _LONGEST_GRACE_S = 20.0, 86_400.0


class Limit:
    """The node's --max-hours limit; `reached` is true once its time is over."""

    def __init__(self, folder: Path | None, name: str, environment: Mapping[str, str]) -> None:
        self._hours, self._start = environment.get(HOURS, ""), start_of(environment)
        self._path = _path(folder, name) if folder and self._hours else None
        self._deadline = self._read_deadline() if self._hours else float("inf")
        # On the monotonic clock, so that a change of the system clock neither shortens nor extends the run.
        self._ends = time.monotonic() + self._deadline - time.time()
        self._keep()
        self.reached = False

    @property
    def words(self) -> str:
        """Why the node stops."""
        return f"reached its limit of {self._hours} h (--max-hours)"

    def look(self) -> bool:
        """Whether the limit has just been reached; true once."""
        if self.reached or time.monotonic() < self._ends:
            return False
        self.reached = True
        self._keep(self.words)
        return True

    def _read_deadline(self) -> float:
        own = time.time() + float(self._hours) * 3600
        with suppress(OSError, ValueError):
            if self._path:
                start, deadline, *_ = read(self._path).split()
                own = float(deadline) if start == self._start else own
        return own

    def _keep(self, words: str = "") -> None:
        with suppress(OSError):
            if self._path:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                replace(self._path, f"{self._start} {self._deadline} {words}".rstrip())


def start_of(environment: Mapping[str, str]) -> str:
    """An id that all starts of a node under one limit share. A requeued Slurm job keeps its id."""
    job = environment.get("SLURM_JOB_ID") if "MUSTER_ALL_SIGNALLED" in environment else None
    return f"job-{job}" if job else environment.get("PET_RDZV_ID", "-")


def why_stopped(folder: Path, start: str) -> str:
    """The limit that a node of this start has reached, in words; empty if none has.

    The first node that reaches its limit stops the other nodes, whose own limits may come a second later.
    """
    for path in folder.glob("nodes/.*.limit"):
        with suppress(OSError, ValueError):
            own, _, words = read(path).split(" ", 2)
            if own == start and words.startswith("reached"):
                return words
    return ""


def _path(folder: Path, name: str) -> Path:
    return folder / "nodes" / f".{name}.limit"


def grace(asked: str, usual: str) -> float:
    """How many seconds ranks may take to end: `asked` (--grace), or else `usual`, torchrun's timeout, or else 20."""
    for text in (asked, usual):
        if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) and 0 < float(text) <= _LONGEST_GRACE_S:
            return float(text)
    return USUAL_GRACE_S
