"""The times in the state of a rendezvous, by this host's own clock: the clocks of hosts may differ by any amount.

torch compares its own clock with a time that another host wrote by its own, and takes a node for dead whose heartbeat
is old by that. Here a heartbeat is as old as the time since this host first read it, and that is measured by a clock
that nobody sets.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

_DEADLINE = "deadline"


@dataclass
class _Reading:
    """What a node wrote, when this host first read it (seconds of `time.monotonic`), and what it was given out as."""

    written: datetime
    at: float
    given: datetime


class LocalTimes:
    """Replaces times as they are read, and puts back those that others wrote as they are stored.

    `last_call_s`: how long after its writing a deadline ends.
    """

    def __init__(self, last_call_s: float) -> None:
        self._last_call_s = last_call_s
        self._readings: dict[Any, _Reading] = {}

    def read(self, state: Any) -> None:
        """Change the times of a state that came from the store to those of this host."""
        known, self._readings = self._readings, {}
        for node, written in state.last_heartbeats.items():
            state.last_heartbeats[node] = self._read(node, written, known.get(node), 0.0)
        if state.deadline:
            state.deadline = self._read(_DEADLINE, state.deadline, known.get(_DEADLINE), self._last_call_s)

    def write(self, state: Any) -> None:
        """Change the times of a state that goes to the store to those that their nodes wrote."""
        for node, given in state.last_heartbeats.items():
            state.last_heartbeats[node] = self._write(node, given)
        if state.deadline:
            state.deadline = self._write(_DEADLINE, state.deadline)

    def _read(self, key: Any, written: datetime, known: _Reading | None, ahead_s: float) -> datetime:
        at = known.at if known and known.written == written else time.monotonic()
        given = datetime.now(UTC) + timedelta(seconds=ahead_s + at - time.monotonic())
        self._readings[key] = _Reading(written, at, given)
        return given

    def _write(self, key: Any, given: datetime) -> datetime:
        reading = self._readings.get(key)
        if reading and reading.given == given:
            return reading.written
        self._readings[key] = _Reading(given, time.monotonic(), given)  # this node's own, of this moment
        return given
