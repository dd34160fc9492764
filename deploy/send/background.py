"""Do work in a background thread while the caller does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """Starts `work` immediately, in a daemon thread: the threads of an executor would delay the exit after Ctrl-C."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._ended = Future[T]()

        def serve() -> None:
            try:
                self._ended.set_result(work())
            except BaseException as fault:
                self._ended.set_exception(fault)

        threading.Thread(target=copy_context().run, args=(serve,), daemon=True, name="muster-ahead").start()

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the work and return its result. Raises what the work raised, or TimeoutError after `timeout_s`."""
        return self._ended.result(timeout_s)
