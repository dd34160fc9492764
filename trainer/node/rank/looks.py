"""What every thread of this process is doing, each 2 s (10 s where no Python can run), in a file for the node's agent.

A thread of ours looks, holding the interpreter as any thread does. faulthandler's own thread looks without: it is
armed for the time that ours cannot run because other code holds the interpreter, and for a crash. It is not used
before: while Python code runs, it reads frames that change under it, which ends the process (1 look in 300 at a busy
interpreter).
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
_HIGH_NUMBER = 200  # of 1,024 that a process usually may have
_MOST_BYTES, _MOST_THREADS, _MOST_FRAMES = 256 * 1024, 100, 100
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep

_arm: Callable[..., Any] = faulthandler.dump_traceback_later
_disarm: Callable[[], Any] = faulthandler.cancel_dump_traceback_later


class Looks:
    """The file of one process. `take` raises OSError."""

    def __init__(self, path: str) -> None:
        self._path, self._reports_crash = path, False
        self._open()
        self._until_armed, self.taken_over, self._paused = 0, False, False
        _yield_to_others(self)

    def take(self, about: dict[str, Any]) -> None:
        """Look once. `about` goes into the look's first line."""
        self._find_file()
        main = threading.main_thread().ident or 0
        text = [f"Look {json.dumps({**about, 'main': f'0x{main:016x}'})}\n"]
        for ident, frame in list(sys._current_frames().items())[:_MOST_THREADS]:
            text += _thread(ident, frame)
        if os.fstat(self._file).st_size > _MOST_BYTES:
            os.ftruncate(self._file, 0)
        # A file or a function may have the name of a secret.
        os.write(self._file, masked("".join(text)).encode(errors="replace"))

    def _open(self) -> None:
        """Open the file, by a number that no file of the script's gets soon."""
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        with suppress(OSError):  # a process that may not have so many
            low, self._file = self._file, fcntl.fcntl(self._file, fcntl.F_DUPFD_CLOEXEC, _HIGH_NUMBER)
            os.close(low)
        status = os.fstat(self._file)
        self._known = status.st_dev, status.st_ino
        if self._reports_crash or not faulthandler.is_enabled():
            # A crash in native code leaves the place in the script behind.
            faulthandler.enable(file=self._file)
            self._reports_crash = True

    def _find_file(self) -> None:
        """Open it again where the script has closed all files: the number may be a file of its own by now."""
        with suppress(OSError):
            status = os.fstat(self._file)
            if (status.st_dev, status.st_ino) == self._known:
                return
        self._open()
        self._until_armed = 0

    def arm(self) -> None:
        """Have faulthandler look as well, should this not be called again in time."""
        self._until_armed -= 1
        if self._until_armed < 0 and not self.taken_over and not self._paused:
            self._until_armed = _ARM_EVERY - 1
            _arm(_LOCKED_SECONDS, repeat=True, file=self._file)

    def pause(self) -> None:
        """Before a fork, or the end: an armed child would wait at its own end for a thread that it lacks."""
        self._paused = True
        if not self.taken_over:
            _disarm()

    def resume(self) -> None:
        """After the fork, in the process that goes on."""
        self._paused, self._until_armed = False, 0


def _thread(ident: int, frame: FrameType | None) -> list[str]:
    """A thread as faulthandler writes it; nothing for the one that looks."""
    if frame is None or frame.f_code.co_filename.startswith(_OWN):
        return []
    lines = [f"Thread 0x{ident:016x} (most recent call first):\n"]
    for _ in range(_MOST_FRAMES):
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}\n')
        if not (frame := frame.f_back):
            break
    return lines


def _yield_to_others(looks: Looks) -> None:
    """faulthandler has one such thread: a script that asks for it has it, and keeps it."""

    def yields(*_: Any, **__: Any) -> None:
        looks.taken_over = True

    hooks.wrap(faulthandler, "dump_traceback_later", yields)
    hooks.wrap(faulthandler, "cancel_dump_traceback_later", yields)
