"""A word now and then while a step takes long and no terminal shows its progress: in a log, a pipe, a CI job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..core.text import in_seconds
from .push_progress import Transfers

FIRST_S, THEN_S = 10.0, 30.0


@contextmanager
def ticking(
    words: Callable[[], str], say: Callable[[str], None], first_s: float = FIRST_S, then_s: float = THEN_S
) -> Iterator[None]:
    """Say `words()` and the seconds so far, after `first_s` and then every `then_s`, from a thread of its own."""
    over, began = threading.Event(), time.monotonic()

    def tick() -> None:
        wait = first_s
        while not over.wait(wait):
            say(f"{words()}   {in_seconds(round(time.monotonic() - began))}")
            wait = then_s

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def phases(what: str, say: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Yields what takes the phase of a step; any thread may call it."""
    latest = {"phase": ""}
    with ticking(lambda: f"{what}   {latest['phase']}".rstrip(), say):
        yield lambda phase: latest.update(phase=phase)


@contextmanager
def transfers(rows: Transfers, say: Callable[[str], None]) -> Iterator[Callable[[str, int, int], None]]:
    """Yields what takes a host, its bytes so far, and all of them; any thread may call it."""
    lock = threading.Lock()

    def words() -> str:
        with lock:
            return rows.line(time.monotonic())

    def tell(host: str, sent: int, total: int) -> None:
        with lock:
            rows.tell(host, sent, total, time.monotonic())

    with ticking(words, say):
        yield tell
