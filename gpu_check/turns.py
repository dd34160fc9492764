"""Contenders that train in turns: while one runs, the others are stopped (SIGSTOP).

So the machine's changing load affects all of them alike. The medians of all turns are compared.
"""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.figure import spread

from .finding import Finding, judge
from .nodes import Run
from .processes import send

TURN_S, LONGEST_TURN_S = 0.8, 6.0
FIRST_STEP = 50
_START_S, _POLL_S = 90.0, 0.05


@dataclass
class Contender:
    """A run of one node that trains until it is ended; `lines` returns the time and step of every tenth step."""

    run: Run
    lines: Callable[[], list[dict[str, Any]]]
    pids: Sequence[int] = ()

    def ready(self) -> None:
        """Wait until it has made its first steps, and stop it until its first turn."""
        self.run.wait(lambda: (lines := self.lines()) and lines[-1]["step"] >= FIRST_STEP, "its first steps", _START_S)
        # Agents are not stopped: if this process is killed, they notice it, and end the stopped processes.
        self.pids = self.run.processes_below()
        send(self.pids, signal.SIGSTOP)

    def take_turn(self) -> float | None:
        """Let it train for a while; returns milliseconds per step, or None if it made too few steps."""
        known, began = len(self.lines()), time.monotonic()
        send(self.pids, signal.SIGCONT)
        time.sleep(TURN_S)
        # The first line after the pause ends an interval that began before the pause.
        while len(inside := self.lines()[known:]) < 3 and time.monotonic() - began < LONGEST_TURN_S:
            time.sleep(_POLL_S)
        send(self.pids, signal.SIGSTOP)
        if len(inside) < 2:
            return None
        return float((inside[-1]["t"] - inside[0]["t"]) / (inside[-1]["step"] - inside[0]["step"]) * 1e3)


def in_turns(contenders: Mapping[str, Contender], turns: int) -> dict[str, list[float]]:
    """Milliseconds per step in each contender's turns, in rotating order; all contenders start at the same time."""
    for contender in contenders.values():
        contender.ready()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if (milliseconds := contenders[name].take_turn()) is not None:
                taken[name].append(milliseconds)
    return taken


def clearly_below(ratios: Sequence[float], limit: float) -> bool:
    """Whether three of four ratios are below `limit`: a median alone may be low by chance if others use the cores."""
    return statistics.quantiles(ratios, n=4)[2] < limit


def compare_rates(what: str, ours: Sequence[float], theirs: Sequence[float], turns: int, least: float) -> Finding:
    """Whether ours makes at least the share `least` of their steps per second.

    `ours` and `theirs` are milliseconds per step, in `turns` turns.
    """
    if min(len(ours), len(theirs)) < turns // 2:
        return judge(what, False, f"{len(ours)} turns of ours, {len(theirs)} of theirs", f"{turns} turns of both")
    ratios = [other / own for own, other in zip(ours, theirs, strict=False)]
    measured = f"{spread(ratios)}x: {spread(ours)} ms, theirs {spread(theirs)} ms"
    good = not clearly_below(ratios, least)
    return judge(what, good, measured, f">= {least}x, or not clearly less", ratios=ratios)
