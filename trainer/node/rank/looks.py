"""Writes what each thread of this process is doing into a file for the agent: every 2 s, or 10 s if no Python can run.

A look is a snapshot of all threads' stacks. The watcher's thread takes it while it holds the interpreter lock (GIL).
faulthandler's own thread takes it without that lock: it is armed for a crash, and for the time in which the watcher's
thread cannot run because other code holds the lock. It is not used otherwise: while Python code runs, it reads frames
that change under it, which crashes the process (1 look in 300 at a busy interpreter).
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from . import hooks
from .failure import masked

SECONDS = 2.0
_LOCKED_SECONDS = 10.0
_ARM_EVERY = 2
_HIGH_NUMBER = 200  # a process may usually have 1,024 descriptors
_MOST_BYTES, _MOST_THREADS, _MOST_FRAMES = 256 * 1024, 100, 100
_WATCHER_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep

_arm: Callable[..., Any] = faulthandler.dump_traceback_later
_disarm: Callable[[], Any] = faulthandler.cancel_dump_traceback_later


class Looks:
    """The file with the looks of one process. `take` raises OSError."""

    def __init__(self, path: str) -> None:
        self._path, self._reports_crash = path, False
        self._open()
        self._until_armed, self.taken_over, self._paused = 0, False, False
        _yield_to_others(self)

    def take(self, about: dict[str, Any]) -> None:
        """Take one look. `about` goes into its first line."""
        self._find_file()
        main = threading.main_thread().ident or 0
        text = [f"Look {json.dumps({**about, 'main': f'0x{main:016x}'})}\n"]
        for ident, frame in list(sys._current_frames().items())[:_MOST_THREADS]:
            text += _thread(ident, frame)
        if os.fstat(self._file).st_size > _MOST_BYTES:
            os.ftruncate(self._file, 0)
        # The name of a file or a function may contain a secret.
        os.write(self._file, masked("".join(text)).encode(errors="replace"))

    def _open(self) -> None:
        """Open the file, with a high descriptor number that no file of the script gets soon."""
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        with suppress(OSError):  # the process may not have that many descriptors
            low, self._file = self._file, fcntl.fcntl(self._file, fcntl.F_DUPFD_CLOEXEC, _HIGH_NUMBER)
            os.close(low)
        status = os.fstat(self._file)
        self._known = status.st_dev, status.st_ino
        if self._reports_crash or not faulthandler.is_enabled():
            # After a crash in native code, the file then shows where the script was.
            faulthandler.enable(file=self._file)
            self._reports_crash = True

    def _find_file(self) -> None:
        """Open the file again if the script has closed all files: the number may now belong to a file of the script."""
        with suppress(OSError):
            status = os.fstat(self._file)
            if (status.st_dev, status.st_ino) == self._known:
                return
        self._open()
        self._until_armed = 0

    def arm(self) -> None:
        """Have faulthandler take a look if this is not called again in time."""
        self._until_armed -= 1
        if self._until_armed < 0 and not self.taken_over and not self._paused:
            self._until_armed = _ARM_EVERY - 1
            _arm(_LOCKED_SECONDS, repeat=True, file=self._file)

    def pause(self) -> None:
        """Disarm before a fork or the end: at its own end, an armed child would wait for a thread that it lacks."""
        self._paused = True
        if not self.taken_over:
            _disarm()

    def resume(self) -> None:
        """Resume after the fork, in the parent process."""
        self._paused, self._until_armed = False, 0


def _thread(ident: int, frame: FrameType | None) -> list[str]:
    """A thread's stack in faulthandler's format; nothing for the thread that takes the look."""
    if frame is None or frame.f_code.co_filename.startswith(_WATCHER_FOLDER):
        return []
    lines = [f"Thread 0x{ident:016x} (most recent call first):\n"]
    for _ in range(_MOST_FRAMES):
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}\n')
        if not (frame := frame.f_back):
            break
    return lines


def _yield_to_others(looks: Looks) -> None:
    """faulthandler has only one such thread: if the script uses it, leave it to the script from then on."""

    def yields(*_: Any, **__: Any) -> None:
        looks.taken_over = True

    hooks.wrap(faulthandler, "dump_traceback_later", yields)
    hooks.wrap(faulthandler, "cancel_dump_traceback_later", yields)
