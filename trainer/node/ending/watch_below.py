"""The processes below a launcher that have torch loaded, as they are seen from outside.

A shell script may lose what has each Python note how it trains and ends (trainer/node/rank/): with `PYTHONPATH=.`,
`python -I`, `env -i`, `--no-observe`. What such a process cannot note, torchrun's process notes for it: that it has
torch loaded, whose command it is, and the code it ended with. The kernel keeps that code for whoever holds the process
(Linux 6.15); before, it shows the code while the process gives its memory back. A process that does note its end is
held as well, for the kill that comes before its first step. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.reserve import note

from .. import processes
from ..rank import worlds
from ..rank.place import slot
from ..variables import is_observed
from . import own_world, rank_lives, training_alone

_EVERY_SECONDS, _MOST_WATCHED, _MOST_LOOKED = 0.3, 64, 2000
# An import of torch takes longer than the one, and gives its memory back for longer than the other.
_LOOK_MS, _LOOK_SEEN_MS, _SETTLE_SECONDS = 4, 50, 2.0
# linux/pidfd.h: PIDFD_GET_INFO for the first form of struct pidfd_info, whose last number is the exit code.
_GET_INFO, _INFO_BYTES, _INFO_EXIT, _AT_CODE = 0xC040FF0B, 64, 8, 60
# linux/sched.h: PF_EXITING. Fields of /proc/PID/stat behind the name.
_EXITING, _FLAGS, _CODE = 0x4, 6, 49
# The options with which Python reads no PYTHONPATH, or runs no sitecustomize.
_IGNORES = re.compile(r"-[bBdhiOPqRsuvVx]*[EIS]")


class Unseen:
    """Of the processes below the rank `pid`, which started with `environment`: those that note nothing themselves."""

    def __init__(self, outcome: Path, environment: Mapping[str, str], pid: int) -> None:
        self._outcome, self._pid, self._next = outcome, pid, 0.0
        self._life, self._nodes = environment[rank_lives.LIFE], int(environment.get("WORLD_SIZE", "1"))
        self._slot = slot(environment)
        self._known, self._watched = set[int](), dict[int, threading.Thread]()

    def look(self) -> None:
        """Note those that are new; seldom enough to cost nothing."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_SECONDS
            # A loop of a shell may start hundreds, one after another: those that ended leave room.
            self._known = set(filter(processes.lives, self._known))
            self._watched = {pid: watch for pid, watch in self._watched.items() if watch.is_alive()}
            self._look()

    def settle(self) -> None:
        """Wait until it is noted how those have ended that have."""
        for pid, thread in self._watched.items():
            if not processes.lives(pid):
                thread.join(_SETTLE_SECONDS)

    def _look(self) -> None:
        """Walk down from the rank. Without recursion, and not for ever: a script decides how many there are."""
        below = deque((pid, True) for pid in processes.children(self._pid))
        for _ in range(_MOST_LOOKED):
            if not below:
                return
            pid, is_top = below.popleft()
            with suppress(OSError, ValueError, RuntimeError):  # it is gone; no thread can be started
                below.extend(
                    (child, is_below) for is_below in self._look_at(pid, is_top) for child in processes.children(pid)
                )

    def _look_at(self, pid: int, is_top: bool) -> list[bool]:
        """Note a process that is new. Gives whether those below it are the topmost ones; nothing: leave them."""
        words = processes.texts(pid, "cmdline")
        if "python" not in os.path.basename(words[0]) or not has_torch(pid):
            return [is_top]
        variables = dict(each.partition("=")[::2] for each in processes.texts(pid, "environ"))
        seen = notes_itself(words, variables)
        if pid not in self._known and len(self._watched) < _MOST_WATCHED:
            self._known.add(pid)
            if seen:
                self._hold(pid, "", worlds.command_of(pid)["shell"], worlds.program_of(words))
            else:
                self._note_new(pid, words, variables, is_top)
        return [False] if self._nodes > 1 and not seen else []  # whether several are at work

    def _note_new(self, pid: int, words: Sequence[str], variables: Mapping[str, str], is_top: bool) -> None:
        """Note a process; one below another such process is that one's to wait for."""
        about, world = worlds.command_of(pid), self._world(words, variables)
        name = f"{pid}-{time.time_ns()}"
        if not is_top:
            if world:
                self._note(pid=pid, **about, **world)
            return
        self._note(pid=pid, **about, **world, process=name, script=worlds.program_of(words), outside=True)
        self._hold(pid, name, about["shell"], worlds.program_of(words))

    def _hold(self, pid: int, name: str, shell: list[str], script: str) -> None:
        """Have its end noted: that of `name`, or, of a process that does so itself, a kill."""
        about = {"pid": pid, **({"process": name} if name else {"lost": script, "shell": shell})}
        watch = threading.Thread(target=self._watch, args=(about,), daemon=True)
        self._watched[pid] = watch
        watch.start()

    def _world(self, words: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
        """Whether it has joined other nodes, or works where these do not come; nothing where more is noted."""
        own = [note for note in training_alone.notes(self._outcome) if self._slot.items() <= note.items()]
        if self._nodes < 2 or any("size" in note or "stepped" in note for note in own):
            return {}
        if nodes := variables.get("GROUP_WORLD_SIZE"):  # torchrun tells its ranks
            return {"unseen": True, "own": True} if nodes == "1" else {"joined": True}
        if launch := own_world.launch_of(words, variables):
            return launch
        return {"unseen": True} if own_world.is_astray(words, variables) else {}

    def _watch(self, about: dict[str, object]) -> None:
        """Note the code that a process ended with, as soon as it has; None where that is not known."""
        pid, name, code = int(str(about["pid"])), about.get("process"), None
        with suppress(OSError):  # it has just gone, or this container forbids handles
            code = _code_of(pid, _LOOK_MS if name else _LOOK_SEEN_MS)
        if name or (code is not None and code < 0):
            self._note(**about, code=code)

    def _note(self, **about: object) -> None:
        note(self._outcome, **{**self._slot, "t": time.time(), "life": self._life, **about})


def notes_itself(words: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether a Python with these words and variables is watched from inside."""
    options = list[str]()
    for word in words[1:]:
        if not word.startswith("-") or word in ("-m", "-c", "-"):
            break
        options.append(word)
    on_path = str(training_alone.SITE) in variables.get("PYTHONPATH", "").split(os.pathsep)
    blind = any(map(_IGNORES.match, options))
    return on_path and "MUSTER_OUTCOME_DIR" in variables and is_observed(variables) and not blind


def has_torch(pid: int) -> bool:
    """Whether a process has torch loaded. Raises OSError where it is gone."""
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text(errors="replace")


def _code_of(pid: int, every_ms: int) -> int | None:
    """Wait for a process of others, and return its code as Popen has it; None where the kernel did not show it.

    Raises OSError if it is gone.
    """
    handle = os.pidfd_open(pid)  # type: ignore[attr-defined,unused-ignore]
    try:
        status = _last_seen(pid, handle, every_ms)
        if status is None:  # its parent has taken the code
            info = bytearray(struct.pack("Q", _INFO_EXIT).ljust(_INFO_BYTES, b"\0"))
            fcntl.ioctl(handle, _GET_INFO, info)
            status = struct.unpack_from("i", info, _AT_CODE)[0] if info[0] & _INFO_EXIT else None
    except OSError:  # a kernel, or a container, that does not tell
        return None
    finally:
        os.close(handle)
    return None if status is None else os.waitstatus_to_exitcode(status)


def _keeps_codes() -> bool:
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 15)


def _last_seen(pid: int, handle: int, every_ms: int) -> int | None:
    """The code that a process shows from the beginning of its end until its parent has taken it."""
    status, over, ended = None, False, select.poll()
    ended.register(handle, select.POLLIN)
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        while not over:
            over = bool(ended.poll(None if _keeps_codes() else every_ms))
            file.seek(0)
            fields = file.read().rpartition(b")")[2].split()
            if int(fields[_FLAGS]) & _EXITING:
                status = int(fields[_CODE])  # right at the beginning there is none yet: the last one counts
    return status
