"""The register for a spare, which does not vote: it takes the newest epoch that other nodes report.

A node reports an epoch only once a majority keeps it, so an epoch with a larger number is always the newer one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from muster.files import parse, read, replace

from .members import Epoch, View

# The text fields and the flags of a view.
_TEXTS, _FLAGS = ("store", "files", "stands", "share", "life"), ("stops", "leaves", "done", "failed", "over")


class Registered(Protocol):
    """The register as a node of the group uses it, whether it votes or not."""

    @property
    def epoch(self) -> Epoch:
        """The newest epoch that a majority keeps, as far as this node knows."""

    @property
    def is_current(self) -> bool:
        """Whether this node knows enough to take part."""

    @property
    def is_leader(self) -> bool:
        """Whether this node decides for the other nodes."""

    def form(self, number: int, members: tuple[str, ...]) -> None:
        """Propose an epoch."""

    def end(self, number: int, code: int) -> None:
        """Propose the run's end."""


class SpareRegister(Registered):
    """What one spare has heard. `journal`: the file that keeps it. `nodes`: those of the run; more may join."""

    def __init__(self, journal: Path, nodes: Set[str]) -> None:
        self._journal, self.nodes, self._epoch = journal, frozenset(nodes), Epoch()
        self.ended: tuple[int, int] | None = None
        with suppress(OSError, ValueError):
            self._epoch = _epoch(parse(read(journal)), self.nodes)

    def hear(self, message: object) -> None:
        """Take the newest epoch that another node reports. Ignore a message that is not an epoch of these nodes."""
        with suppress(ValueError):
            epoch = _epoch(message, self.nodes)
            if (epoch.number, epoch.over is not None) > (self._epoch.number, self._epoch.over is not None):
                self._epoch = epoch
                with suppress(OSError):
                    replace(self._journal, json.dumps(fields_of(epoch)))

    @property
    def epoch(self) -> Epoch:
        """The newest epoch that this node has heard of."""
        return self._epoch

    @property
    def is_current(self) -> bool:
        """Return True: the other nodes form an epoch with this node only after the epoch that it reports."""
        return True

    @property
    def is_leader(self) -> bool:
        """Return False: a spare never leads."""
        return False

    def form(self, number: int, members: tuple[str, ...]) -> None:
        """Do nothing: this node never leads."""

    def end(self, number: int, code: int) -> None:
        """Note that this node's ranks have ended the run. The leader reads it in the answers, and proposes it."""
        self.ended = (number, code)


def fields_of(epoch: Epoch) -> list[Any]:
    """An epoch in the form in which nodes send it to each other."""
    return [epoch.number, list(epoch.members), list(epoch.before), epoch.over, epoch.repeats]


def view_of(answer: Mapping[str, Any], now: float) -> View:
    """The view of a node, from its answer; `now` counts as the time of the answer (the caller may have asked then)."""
    after = answer.get("after")
    texts: Mapping[str, Any] = {name: str(answer.get(name) or "") for name in _TEXTS}
    flags: Mapping[str, Any] = {name: answer.get(name) is True for name in _FLAGS}
    return View(
        answered=now,
        after=int(after) if isinstance(after, int) else None,
        number=int(answer.get("number") or 0),
        sees=frozenset(map(str, answer.get("sees") or ())),
        saved=float(answer.get("saved") or 0.0),
        ended=ended(answer.get("ended")),
        ranks=int(answer.get("ranks") or 1),
        **texts,
        **flags,
    )


def ended(end: object) -> tuple[int, int] | None:
    """The run's end, from the answer of a node without a vote; None if it is not one."""
    if isinstance(end, list) and len(end) == 2 and all(isinstance(each, int) for each in end):
        return end[0], end[1]
    return None


def _epoch(message: object, nodes: Set[str]) -> Epoch:
    """Read the fields that `fields_of` wrote. Raises ValueError."""
    if not (isinstance(message, list) and len(message) == 5 and isinstance(message[0], int) and message[0] >= 0):
        raise ValueError("no epoch")
    number, members, before, over, repeats = message
    known = all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in (members, before))
    counts = isinstance(over, int | None) and isinstance(repeats, int)
    if not known or not nodes >= {*members, *before} or not counts:
        raise ValueError("an epoch of other nodes")
    return Epoch(number, tuple(members), tuple(before), over, repeats)
