"""How this process ends, left behind for the agent where the code that its parent hears may be lost.

A pipe, a shell that goes on, a parent that does not look: the code of a crash ends there. So the process leaves it in
`end-<pid>-<began>` if it trained, else, as a program of its own, in `end-<life of its rank>`, where the last stays.
The file has a line, which Python writes as it ends, and then one byte, the exit code, which the C library adds as the
last thing that it does: only then it is known, after `raise SystemExit(3)` and after what libraries do at the end. A
process that is killed leaves neither. node/ending/judge_below.py judges. Nothing of Muster may be imported here.
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
    """The end of this process, or of one that it forked: `name` says which. `trains`: it has stepped, or has peers."""

    def __init__(self, outcome: str, life: str, raised: UncaughtErrors) -> None:
        self._outcome, self.life, self._raised = outcome, life, raised
        # Python's own helpers end when they are no longer needed, after those that they help.
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
        """This process trains from now on; what is to be noted of it, the first time."""
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
        """This thread has made a step: it trains, whatever another one has raised before."""
        self._thread = get_ident()
        self._raised.by_thread.pop(self._thread, None)

    def _python_ends(self) -> None:
        path = self._write()
        if path and not _add_code(path):
            _add_byte(path, bool(self._error()))

    def _leaves(self, status: int) -> None:
        """os._exit: what multiprocessing ends a forked process with, and a script that waits for nothing more."""
        if path := self._write():
            _add_byte(path, status)

    def _kills(self, pid: int, number: int) -> None:
        """A program ends another process, or a group (below 0), on purpose: multiprocessing and subprocess do, too."""
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
    """Have the C library add the exit code to the file: `on_exit` calls `fputc(code, file)`. False where it cannot."""
    try:
        import ctypes

        library = ctypes.CDLL(None)
        library.fopen.restype = ctypes.c_void_p
        # The byte stays in the stream's buffer until all else that ends with the process has ended well.
        file = library.fopen(os.fsencode(path), b"ae")
        return bool(file) and library.on_exit(library.fputc, ctypes.c_void_p(file)) == 0
    except (ImportError, OSError, AttributeError):  # musl and macOS have no on_exit
        return False


def _script() -> str:
    """The program of this process, as its user named it."""
    # multiprocessing starts its children with -c, and gives them the words of their parent.
    of_text = "python -c" if sys.argv[0] == "-c" else sys.argv[0]
    return masked(worlds.program_of(sys.orig_argv, of_text))[-_WORD_MOST:]


def _is_managed() -> bool:
    """Whether others end this process once they need it no more: multiprocessing a daemon, ray its workers."""
    process = getattr(sys.modules.get("multiprocessing.process"), "current_process", None)
    return "ray" in sys.modules or bool(process and process().daemon)
