"""How much a CPU limit throttles the ranks of a node, from their cgroups' cpu.stat. Standard library only.

A cgroup with a limit may use its share of the processors in each period, usually of 100 ms, and then is paused until
the next period. The kernel counts all periods, and those in which it paused the cgroup (cgroup-v2, "CPU Interface
Files").
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import cgroups
from ..ending.rank_lives import Life

_EVERY_SECONDS, _LOOKS, _LEAST_PERIODS = 2.0, 6, 20
# In percent: a rank is reported as throttled from the first share on, until its share is below the second one.
_BEGIN_PERCENT, _END_PERCENT = 30.0, 15.0


@dataclass(frozen=True)
class Limit:
    """A limit of `cpus` processors; and the kernel's counts: all periods, and those in which it paused the cgroup."""

    folder: Path
    cpus: float
    periods: int
    held: int


@dataclass
class _Rank:
    pid: int
    looks: deque[dict[Path, Limit]] = field(default_factory=lambda: deque(maxlen=_LOOKS))
    reported: bool = False


class Throttle:
    """Checks the limits of a node's ranks every 2 s. `root`: the folder that contains /proc and /sys."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._next = root, 0.0
        self._ranks: dict[int, _Rank] = {}

    def look(self, lives: Sequence[Life]) -> list[tuple[int, dict[str, Any]]]:
        """The ranks whose throttling has begun (in `percent` of the periods) or has ended (0)."""
        now = time.monotonic()
        if now < self._next:
            return []
        self._next, news = now + _EVERY_SECONDS, []
        for life in lives:
            if life.code is not None:
                self._ranks.pop(life.rank, None)
                continue
            seen = self._ranks.get(life.rank)
            if seen is None or seen.pid != life.pid:
                seen = self._ranks[life.rank] = _Rank(life.pid)
            seen.looks.append({limit.folder: limit for limit in limits(life.pid, self._root)})
            percent, cpus = _worst(seen.looks)
            if not seen.reported and percent >= _BEGIN_PERCENT:
                news.append((life.rank, {"percent": round(percent), "cpus": round(cpus, 2)}))
                seen.reported = True
            elif seen.reported and percent < _END_PERCENT:
                news.append((life.rank, {"percent": 0, "cpus": round(cpus, 2)}))
                seen.reported = False
        return news


def limits(pid: int, root: Path) -> Iterator[Limit]:
    """The CPU limits for a process: those of its cgroup and of the cgroups above it."""
    for folder in cgroups.cgroup_folders(pid, "cpu", root):
        with suppress(OSError, ValueError, KeyError):
            stat = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
            if cpus := _cpus(folder):
                yield Limit(folder, cpus, int(stat["nr_periods"]), int(stat["nr_throttled"]))


def _cpus(folder: Path) -> float:
    """How many processors a cgroup may use; 0 without a limit. Raises OSError, ValueError."""
    if (both := folder / "cpu.max").exists():
        quota, period = both.read_text().split()
        return 0.0 if quota == "max" else int(quota) / int(period)
    quota_us, period_us = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    return max(0, quota_us) / period_us


def _worst(looks: Sequence[Mapping[Path, Limit]]) -> tuple[float, float]:
    """The strictest limit: in how many percent of the periods it paused the rank, and how many CPUs it allows."""
    worst = (0.0, 0.0)
    for folder, last in looks[-1].items() if len(looks) == _LOOKS else ():
        first = looks[0].get(folder)
        if first and last.cpus == first.cpus and (periods := last.periods - first.periods) >= _LEAST_PERIODS:
            worst = max(worst, (100.0 * (last.held - first.held) / periods, last.cpus))
    return worst
