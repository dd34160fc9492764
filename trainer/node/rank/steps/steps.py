"""Counts a rank's steps and the known parts of their time; it only adds up numbers, on the script's own thread.

A step of the run is a round of its optimizers. A new round begins when an optimizer steps that has already stepped in
the current round. With one optimizer, each of its steps is a round; with the two optimizers of a GAN, the one with more
steps counts.
"""

from __future__ import annotations

import _thread
from time import perf_counter
from typing import Any, NamedTuple
from weakref import ref

_MOST_ITERATORS = 64
# The first steps are looked at closely, and so is the step after one that took this many seconds.
FIRST_STEPS, _SLOW_SECONDS = 10, 0.01


class Done(NamedTuple):
    """Totals up to the end of a step, in seconds and counts. `clock` is the time of perf_counter."""

    step: int
    clock: float
    data: float
    backward: float
    wait: float
    waits: int
    away: float


class Steps:
    """The counters that torch_hooks.py updates, a microsecond each. `done` is replaced whole: another thread reads it.

    `doing`: what the script is doing: `data`, `backward`, or empty for all else. `off`: nothing is counted.
    `several`: more than one optimizer has stepped. From the time `due` on, `backward` asks the watcher whether to look
    at this step closely; from the time `closer_at` on, the answer is yes. `attended`: this step is looked at closely.
    `at_step`: how often `backward` had been called at the last step.
    """

    def __init__(self) -> None:
        self.off = self.attended = self.several = False
        self.doing = ""
        self.due = self.closer_at = self._last = 0.0
        self.at_step = 0
        self.main = _thread.get_ident()
        self.count = self.all = self.skipped = self.backwards = self.fetches = self.foreign = self.waits = 0
        self.data = self.backward = self.wait = self.away = 0.0
        self.begun: Done | None = None
        self.done: tuple[int, float, float, float, float, int, float] | None = None
        self._round, self._sole = dict[int, ref[Any]](), 0
        self._iterators: dict[int, list[float]] = {}

    def begin(self) -> None:
        """The script asks for its first batch or its first gradient; time is counted from here."""
        self.begun = Done(0, perf_counter(), 0.0, 0.0, 0.0, 0, 0.0)

    def stepped(self, optimizer: Any) -> bool:
        """Count a step of an optimizer; returns whether it is a step of the run."""
        self.all += 1
        self.at_step = self.backwards
        if (own := id(optimizer)) != self._sole:
            joins = own not in self._round
            self.several = self.several or bool(joins and self._round)
            others = {other: known for other, known in self._round.items() if known()} if joins else {}
            self._round = {**others, own: ref(optimizer)}
            self._sole = own if len(self._round) == 1 else 0
            if not self._sole:
                return False
        self.count += 1
        for entry in self._iterators.values():
            self.data += entry[2]
            entry[2] = 0.0
        now = perf_counter()
        slow = now - self._last >= _SLOW_SECONDS
        self.due = 0.0 if slow or self.count < FIRST_STEPS else self.closer_at
        self._last = now
        self.done = (self.count, now, self.data, self.backward, self.wait, self.waits, self.away)
        return True

    def fetched(self, iterator: int, begin: float) -> None:
        """Note that a DataLoader returned a batch. Its time counts once a step follows, so not in an evaluation."""
        self.fetches += 1
        now = perf_counter()
        entry = self._iterators.get(iterator)
        if entry:
            entry[2] += now - begin
            return
        if not self.begun:
            self.begin()
        if len(self._iterators) >= _MOST_ITERATORS:  # iterators of loops that ended early
            self._iterators.clear()
        self._iterators[iterator] = [self.count, begin, now - begin]

    def exhausted(self, iterator: int) -> None:
        """A DataLoader has no more batches. If it began and ended between two steps, it was an evaluation (`away`)."""
        born, begin, waited = self._iterators.pop(iterator, (-1, 0.0, 0.0))
        if born == self.count:
            self.away += perf_counter() - begin
        else:
            self.data += waited


def between(before: Done, after: Done, usual_wait: float | None) -> dict[str, float]:
    """The mean milliseconds per step between two totals. If no wait was measured, `usual_wait` (ms) is used.

    The wait for other ranks is part of `backward`, and is measured only in some steps. If no wait is known, the result
    has none.
    """
    count = after.step - before.step
    waits = after.waits - before.waits
    step = max(0.0, after.clock - before.clock - (after.away - before.away)) / count * 1e3
    data = min(step, (after.data - before.data) / count * 1e3)
    backward = (after.backward - before.backward) / count * 1e3
    parts = {"data_ms": data, "compute_ms": step - data, "backward_ms": backward, "step_ms": step}
    wait = (after.wait - before.wait) / waits * 1e3 if waits else usual_wait
    if wait is not None:
        parts["wait_ms"] = min(wait, step - data)
        parts["compute_ms"] -= parts["wait_ms"]
    return {name: round(value, 3) for name, value in parts.items()}
