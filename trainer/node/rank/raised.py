"""The exceptions that reach the top of a thread: for the looks of a process that does not end, and for its end.

Python waits for other threads before it ends, maybe for ever; and its main thread may wait for one that failed.
"""

from __future__ import annotations

import sys
import threading
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from . import hooks
from .failure import masked, words


class UncaughtErrors:
    """The last one of the main thread (`error`), and of another thread (`thread_error`). `notify` hears the first."""

    def __init__(self) -> None:
        self._noted: dict[str, str] = {}
        # What ended each thread, by its number: another one may get that.
        self.by_thread: dict[int, str] = {}
        self.notify: Callable[[], object] = lambda: None
        self._hook: object = None

        def of_main(kind: type[BaseException], value: BaseException, _: Any) -> None:
            self._note("error", kind, value)
            self.notify()

        hooks.wrap(sys, "excepthook", of_main)
        self.hear_threads()

    def hear_threads(self) -> None:
        """Hear what ends threads, again where the script has put a hook of its own in the place of ours."""
        if threading.excepthook is not self._hook:
            hooks.wrap(threading, "excepthook", self._thread_ends)
            self._hook = threading.excepthook

    def _thread_ends(self, about: Any) -> None:
        if about.exc_type is not SystemExit:
            self._note("thread_error", about.exc_type, about.exc_value)
            self.by_thread[get_ident()] = self._noted.get("thread_error", "")

    def clear(self) -> None:
        """Forget them: this is another process now."""
        self._noted.clear()
        self.by_thread.clear()

    def about(self) -> dict[str, str]:
        """What a look says of them."""
        return dict(self._noted)

    def _note(self, name: str, kind: type[BaseException], value: BaseException | None) -> None:
        with suppress(Exception):  # a class of the script's whose words raise
            self._noted[name] = masked(kind.__name__)
            if value is not None:
                self._noted[name] = words(value)
