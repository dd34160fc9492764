"""How ranks began and ended, from the node's journal; and MUSTER_LIFE, which marks all processes below a rank.

torchrun itself reports only one failure, after it has ended the other ranks, and never a rank that exits with 0.
Standard library only: the agent needs no torch.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from muster.files import is_number
from muster.reserve import note

from .. import cgroups, variables
from ..notes import Journal

# A new value at each start of a rank: `RANK-ATTEMPT-T`. A launcher below the rank does not change it. torchrun's own
# count would not do: it stays the same when ranks restart because of another node.
LIFE = "MUSTER_LIFE"
# The files in which the kernel counts, in version 2 of cgroups and in version 1.
_COUNTERS = ("memory.events", "memory.oom_control")


@dataclass(frozen=True)
class Crash:
    """Why a rank failed although it ended with 0: in words, the error of the process below it, and a kill's cause."""

    why: str
    error: str = ""
    cause: str = ""


@dataclass(frozen=True)
class Life:
    """A rank in one attempt of torchrun: `began` and `ended` in unix seconds, `code` as in Popen.

    `crash`: what failed below a rank that itself ended with 0 (judge_below.py). `observed`: whether the rank is watched
    from inside.
    """

    rank: int
    local_rank: int
    attempt: int
    world: int
    pid: int
    began: float
    ended: float = 0.0
    code: int | None = None
    crash: Crash | None = None
    observed: bool = True

    @property
    def failed(self) -> bool:
        """Whether it ended with a code other than 0."""
        return bool(self.code)


def new_life(environment: Mapping[str, str]) -> str:
    """The value of LIFE for a rank that torchrun starts with `environment`."""
    return f"{environment['RANK']}-{environment['TORCHELASTIC_RESTART_COUNT']}-{time.time_ns()}"


def note_begin(local_rank: int, pid: int, environment: Mapping[str, str]) -> None:
    """Note that a rank has begun with this environment."""
    place = {"rank": "RANK", "world": "WORLD_SIZE", "attempt": "TORCHELASTIC_RESTART_COUNT"}
    about = {name: int(environment[key]) for name, key in place.items()}
    _note({"local_rank": local_rank, "pid": pid, "observed": int(variables.is_observed(environment)), **about})


def note_end(t: float, local_rank: int, pid: int, code: int, crash: Crash | None = None) -> None:
    """Note that a rank has ended by itself. Ranks that torchrun ended get no note, because they are not at fault.

    `t`: the same time for all ranks that one look finds, as it is unknown which of them ended first.
    """
    _note({"t": t, "local_rank": local_rank, "pid": pid, "code": code, **({"crash": asdict(crash)} if crash else {})})


def _note(about: Mapping[str, Any]) -> None:
    if outcome := os.environ.get("MUSTER_OUTCOME_DIR"):
        note(Path(outcome), **{"t": time.time(), **about})


class Ends:
    """The notes in a node's private folder: the current life of each of its ranks, by local rank."""

    def __init__(self, outcome: Path) -> None:
        self._journal = Journal(outcome)
        self.lives: dict[int, Life] = {}

    def read(self) -> list[Life]:
        """The lives that began or ended since the last call, in that order."""
        news = []
        for row in self._journal.read():
            with suppress(ValueError, KeyError, TypeError):  # a row about something else, or one from the script
                life = self._life(row)
                self.lives[life.local_rank] = life
                news.append(life)
        return news

    def _life(self, row: dict[str, Any]) -> Life:
        """The life that a note is about. Raises ValueError, KeyError or TypeError if the row is not such a note."""
        words = row.pop("crash", None)
        if not all(map(is_number, row.values())):
            raise ValueError("a note has numbers alone, but for a crash")
        local_rank, t = int(row["local_rank"]), float(row["t"])
        if "code" in row:
            crash = Crash(**{name: str(text) for name, text in words.items()}) if isinstance(words, dict) else None
            return replace(self.lives[local_rank], ended=t, code=int(row["code"]), crash=crash)
        rank, attempt, world, pid = (int(row[name]) for name in ("rank", "attempt", "world", "pid"))
        return Life(rank, local_rank, attempt, world, pid, began=t, observed=row.get("observed") != 0)


class Memory:
    """Whether the kernel killed processes of this container, or of this process's group, because memory ran out."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._files = [folder / name for folder in cgroups.cgroup_folders("self", "memory", root) for name in _COUNTERS]
        self._before, self._met_before = self._counts()

    def killed(self) -> bool | None:
        """Whether it has done so since this object was created; None if the kernel does not report it."""
        now, _ = self._counts()
        return None if now is None or self._before is None else now > self._before

    def of_host(self) -> bool:
        """Whether the container has not reached its own limit: then its host's memory, or a limit above it, ran out."""
        return self._counts()[1] == self._met_before

    def _counts(self) -> tuple[int | None, int]:
        """How many processes the kernel has killed here, and how often the container has reached its limit."""
        for path in self._files:
            with suppress(OSError, ValueError):
                fields = dict(line.split() for line in path.read_text().splitlines())
                if "oom_kill" not in fields:
                    continue
                met = int(fields.get("oom", 0))
                with suppress(OSError, ValueError):  # version 1 counts that in a separate file
                    met = int(path.with_name("memory.failcnt").read_text())
                return int(fields["oom_kill"]), met
        return None, 0


def ended_why(code: int, oom: bool | None = None, of_host: bool = False) -> str:
    """The cause of such an end, in contract.md's words; empty for an exit code, which the rank's error explains."""
    if code >= 0:
        return ""
    if code != -signal.SIGKILL or not oom:
        return "killed"
    return "host-out-of-memory" if of_host else "container-out-of-memory"


def ended_how(code: int, oom: bool | None = None, of_host: bool = False) -> str:
    """How a rank ended, in words. `oom`: whether the kernel reports a kill because memory ran out; None: unknown.

    `of_host`: the memory of the host ran out, not the container's own limit.
    """
    if code != -signal.SIGKILL:
        return code_in_words(code)
    causes: Mapping[bool | None, str] = {
        True: f" (out of memory {'on its host' if of_host else 'in its container'}: the kernel says so)",
        False: " from outside (the kernel was not out of memory)",
        None: " (from outside or out of memory: not known)",
    }
    return code_in_words(code) + causes[oom]


def code_in_words(code: int) -> str:
    """How a process with this code (as in Popen) ended, in words."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal: Linux has them from 34 on, macOS has none
        return f"was killed by SIGRTMIN+{-code - 34}"
