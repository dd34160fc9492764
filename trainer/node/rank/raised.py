"""The uncaught exceptions of threads, for the looks of a process that does not end (looks.py), and for its end note.

Python waits for other threads before it ends, perhaps for ever; and the main thread may wait for a thread that failed.
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
    """The last uncaught exception of the main thread (`error`) and of another thread (`thread_error`).

    `notify` is called after that of the main thread.
    """

    def __init__(self) -> None:
        self._noted: dict[str, str] = {}
        # The error that ended each thread, by the thread's number, which a later thread may get again.
        self.by_thread: dict[int, str] = {}
        self.notify: Callable[[], object] = lambda: None
        self._hook: object = None

        def of_main(kind: type[BaseException], value: BaseException, _: Any) -> None:
            self._note("error", kind, value)
            self.notify()

        hooks.wrap(sys, "excepthook", of_main)
        self.hear_threads()

    def hear_threads(self) -> None:
        """Watch for errors that end threads; also again, if the script has replaced the hook with its own."""
        if threading.excepthook is not self._hook:
            hooks.wrap(threading, "excepthook", self._thread_ends)
            self._hook = threading.excepthook

    def _thread_ends(self, about: Any) -> None:
        if about.exc_type is not SystemExit:
            self._note("thread_error", about.exc_type, about.exc_value)
            self.by_thread[get_ident()] = self._noted.get("thread_error", "")

    def clear(self) -> None:
        """Forget all exceptions, in a process that has just been forked."""
        self._noted.clear()
        self.by_thread.clear()

    def about(self) -> dict[str, str]:
        """The exceptions, as fields of a look."""
        return dict(self._noted)

    def _note(self, name: str, kind: type[BaseException], value: BaseException | None) -> None:
        with suppress(Exception):  # the script's own exception class may raise in __str__
            self._noted[name] = masked(kind.__name__)
            if value is not None:
                self._noted[name] = words(value)
