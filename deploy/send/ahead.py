"""Work in a thread of its own, while this one does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Begins `work` at once. The thread is a daemon: an executor's would hold up the end of a program after Ctrl-C."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._ended = Future[T]()

        def serve() -> None:
            try:
                self._ended.set_result(work())
            except BaseException as fault:
                self._ended.set_exception(fault)

        threading.Thread(target=copy_context().run, args=(serve,), daemon=True, name="muster-ahead").start()

    def result(self, timeout_s: float | None = None) -> T:
        """What came of it, once it has ended; raises what it raised, or TimeoutError after that time."""
        return self._ended.result(timeout_s)
