"""Leaves a note for the agent on how this process ends, because the exit code that its parent gets may be lost.

A pipe, a shell that continues, or a parent that does not check loses the code of a crash. So the process writes it to
`end-<pid>-<began>` if it trained. Otherwise, if it is a program of its own, it writes to `end-<life of its rank>`,
where the last one stays. The file has a line, which Python writes when it ends, and then one byte, the exit code, which
the C library adds last of all: only then is the code known, after `raise SystemExit(3)` and after what libraries do at
the end. A process that is killed leaves neither. node/ending/judge_below.py evaluates the file. Nothing of Muster may
be imported here.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
from _thread import get_ident
from pathlib import Path
from typing import Any

from . import hooks, worlds
from .failure import masked, words
from .place import note
from .raised import UncaughtErrors

_WORD_MOST = 400
_DEADLY = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGQUIT)


class End:
    """Notes the end of this process, or of one that it forked (`name`). `trains`: it has stepped, or has peers."""

    def __init__(self, outcome: str, life: str, raised: UncaughtErrors) -> None:
        self._outcome, self.life, self._raised = outcome, life, raised
        # multiprocessing's helper processes leave no note: they end after the processes that they help.
        self._program = not any(word.startswith("from multiprocessing.") for word in sys.orig_argv)
        self._begin()
        os.register_at_fork(after_in_child=hooks.quiet(self._forked))
        atexit.register(hooks.quiet(self._python_ends))
        hooks.wrap(os, "_exit", self._leaves)
        hooks.wrap(os, "kill", self._kills)
        hooks.wrap(os, "killpg", lambda group, number: self._kills(-group, number))

    def _begin(self) -> None:
        self.name, self.trains = f"{os.getpid()}-{time.time_ns()}", False
        self._thread = 0

    def _forked(self) -> None:
        self._program = False
        self._begin()

    def begins(self) -> dict[str, Any]:
        """Mark this process as one that trains; the first time, returns the fields to note about it."""
        self.steps()
        if self.trains:
            return {}
        self.trains = True
        self._raised.hear_threads()
        return {
            "script": _script(),
            "managed": _is_managed(),
            "group": os.getpgid(0),
            **worlds.command_of(os.getpid()),
        }

    def steps(self) -> None:
        """Mark this thread as the one that trains, since it has made a step.

        Forget the error under its number: that ended an earlier thread, whose number this one has got.
        """
        self._thread = get_ident()
        self._raised.by_thread.pop(self._thread, None)

    def _python_ends(self) -> None:
        path = self._write()
        if path and not _add_code(path):
            _add_byte(path, bool(self._error()))

    def _leaves(self, status: int) -> None:
        """Called for os._exit, by which multiprocessing ends a forked process, and some scripts end themselves."""
        if path := self._write():
            _add_byte(path, status)

    def _kills(self, pid: int, number: int) -> None:
        """Note that this program kills another process, or a group (a negative number), on purpose.

        multiprocessing and subprocess do that too.
        """
        if number in _DEADLY and pid not in (0, os.getpid()):
            note(self._outcome, kills=pid)

    def _write(self) -> str:
        if not self.trains and not self._program:
            return ""
        path = os.path.join(self._outcome, f"end-{self.name if self.trains else self.life}")
        line = {"t": time.time(), "process": self.name, "script": _script()}
        line |= {"error": self._error(), "thread": self._raised.by_thread.get(self._thread, "")}
        line |= {} if self.trains else {"shell": worlds.command_of(os.getpid())["shell"]}
        Path(path).write_text(json.dumps(line) + "\n")
        return path

    def _error(self) -> str:
        value = getattr(sys, "last_value", None)
        return words(value) if isinstance(value, BaseException) else ""


def _add_byte(path: str, number: int) -> None:
    with open(path, "ab") as file:
        file.write(bytes([number & 0xFF]))


def _add_code(path: str) -> bool:
    """Have the C library add the exit code to the file: `on_exit` calls `fputc(code, file)`. False if it cannot."""
    try:
        import ctypes

        library = ctypes.CDLL(None)
        library.fopen.restype = ctypes.c_void_p
        # The byte stays in the stream's buffer until everything else at the end of the process has gone well.
        file = library.fopen(os.fsencode(path), b"ae")
        return bool(file) and library.on_exit(library.fputc, ctypes.c_void_p(file)) == 0
    except (ImportError, OSError, AttributeError):  # musl and macOS have no on_exit
        return False


def _script() -> str:
    """The program of this process, as the user typed it."""
    # multiprocessing starts its children with -c, and gives them their parent's arguments.
    of_text = "python -c" if sys.argv[0] == "-c" else sys.argv[0]
    return masked(worlds.program_of(sys.orig_argv, of_text))[-_WORD_MOST:]


def _is_managed() -> bool:
    """Whether another process ends this one when it is no longer needed: a multiprocessing daemon, or a ray worker."""
    process = getattr(sys.modules.get("multiprocessing.process"), "current_process", None)
    return "ray" in sys.modules or bool(process and process().daemon)
