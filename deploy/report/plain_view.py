"""Output without a terminal (a log, a pipe, a CI job): lines about a run, and a line now and then during a long step.

`Transfers` also has the words about a push for a terminal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..core.text import amount, in_seconds, listed, pace
from ..run.progress import State
from ..send.road.routes import HERE
from . import text as lines

FIRST_S, THEN_S = 10.0, 30.0
_EVERY_S = 2.0
_IN_A_LINE = 4  # hosts
_RATE_FROM = 64 << 10  # bytes; with fewer, a rate means nothing


class PlainView:
    """Prints the run's story as it happens, and numbers every 2 s; before the first step, the nodes now and then."""

    def __init__(self, say: Callable[[str, str], None], state: State, recipe: str, why: str) -> None:
        self._say, self._state = say, state
        self._lines_shown = 0
        self._began = self._last = time.monotonic()
        self._opened = time.time()
        self._shown, self._patience = "", FIRST_S
        say("   ".join(["muster", *lines.headline(state, recipe, why)]), "node")

    def tell(self, lines_above: Sequence[str] = (), moving: str = "") -> None:
        """Show what is new. The script's lines go to standard output, and a line that it redraws is not shown."""
        story = self._state.story
        for line in story[self._lines_shown :]:
            at = clock_time(line.t) if story.late and line.t < self._opened else ""  # an old line gets its time
            self._say(f"{at}{line.text}", "warn" if line.grave else "")
        self._lines_shown = len(story)
        now = time.monotonic()
        if self._state.step and now - self._last >= _EVERY_S:
            self._last = now
            self._tell_numbers()
        elif now - self._last >= self._patience and not self._state.ranks.began and not self._state.step:
            self._last, self._patience = now, THEN_S
            self._tell_nodes()

    def close(self) -> None:
        """Print the last numbers, if they are newer than the last line."""
        if self._state.step:
            self._tell_numbers()

    def _tell_nodes(self) -> None:
        by_word: dict[str, list[str]] = {}
        for name in self._state.names:
            by_word.setdefault(lines.node_word(name, self._state), []).append(name)
        words = [f"{listed(names)} {word}" for word, names in by_word.items()]
        self._say(f"{'; '.join(words)}   {since(self._began)}", "")

    def _tell_numbers(self) -> None:
        words = lines.progress_line(self._state)
        if words != self._shown:
            self._shown = words
            self._say(words, "")


def since(began: float) -> str:
    """The seconds since a time by the monotonic clock, in words."""
    return in_seconds(round(time.monotonic() - began))


def clock_time(t: float) -> str:
    """A time to put in front of a line; with the day, if that is not today."""
    day = "" if time.localtime(t)[:3] == time.localtime()[:3] else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M:%S  ", time.localtime(t))


@dataclass
class _Transfer:
    """The bytes so far and in total; `began` and `ended` by the monotonic clock, None until then."""

    sent: int = 0
    total: int = 0
    began: float | None = None
    ended: float | None = None
    source: str = ""


class Transfers:
    """The transfers to or from each of `hosts`. A name that is not among them (this machine, which reads) comes first.

    `then`: what a host does after its last byte.
    """

    def __init__(self, hosts: Sequence[str], then: str = ", loading") -> None:
        self._then, self._lock = then, threading.Lock()
        self._hosts = {host: _Transfer() for host in hosts}

    def note_progress(self, host: str, sent: int, total: int, source: str = "") -> None:
        """`sent` bytes of `total` have gone to the host, now from `source`. A second transfer starts from zero.

        Any thread may call it.
        """
        now = time.monotonic()
        with self._lock:
            transfer = self._hosts.get(host)
            if transfer is None:
                transfer = _Transfer()
                self._hosts = {host: transfer, **self._hosts}
            if transfer.began is None or sent < transfer.sent:
                transfer.began, transfer.ended = now, None
            transfer.sent, transfer.total, transfer.source = sent, total, source
            # The total of a pull grows as more of it becomes known.
            transfer.ended = None if sent < total else transfer.ended or now

    def rows(self, room: int) -> list[tuple[str, str]]:
        """Names and words in at most `room` rows: first the running transfers, then a count of the rest."""
        with self._lock:
            hosts = {name: replace(host) for name, host in self._hosts.items()}
        moving = [name for name, host in hosts.items() if host.began is not None and host.ended is None]
        names = [*moving, *(name for name in hosts if name not in moving)]
        shown = names if len(names) <= room else names[: room - 1]
        rows = [(name, self._words(hosts[name])) for name in shown]
        if left := len(names) - len(shown):
            done = sum(host.ended is not None for host in hosts.values())
            rows.append((f"and {left} more", f"{done} of {len(names)} done"))
        return rows

    def line(self) -> str:
        """The progress in one line, for an output that is not a terminal."""
        return "; ".join(f"{name} {words}" for name, words in self.rows(_IN_A_LINE))

    def _words(self, transfer: _Transfer) -> str:
        if transfer.began is None or not transfer.total:
            return "waiting"
        if transfer.sent < min(_RATE_FROM, transfer.total):
            return f"{amount(transfer.total)} to send"
        words = pace(transfer.sent, transfer.total, (transfer.ended or time.monotonic()) - transfer.began)
        if transfer.ended is not None:
            return f"{words}{self._then}"
        return f"{words}, from {transfer.source}" if transfer.source not in ("", HERE) else words


@contextmanager
def ticking(words: Callable[[], str], say: Callable[[str], None]) -> Iterator[None]:
    """Say `words()` and the seconds so far, after FIRST_S and then every THEN_S, from a separate thread."""
    over, began = threading.Event(), time.monotonic()

    def tick() -> None:
        wait = FIRST_S
        while not over.wait(wait):
            say(f"{words()}   {since(began)}")
            wait = THEN_S

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
