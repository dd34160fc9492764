"""Watches, from outside, the processes below a launcher that have torch loaded.

A shell script may switch off the watcher with which each Python notes how it trains and ends (trainer/node/rank/): by
`PYTHONPATH=.`, `python -I` or `env -i`; `--no-observe` does so too. torchrun's process then notes what such a process
cannot: that it has torch loaded, which command started it, and its exit code. The kernel keeps that code for the holder
of a pidfd (from Linux 6.15 on); an older kernel shows the code only while the process frees its memory. A process that
does note its own end is watched as well, for a kill before its first step. Standard library only.
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
# Importing torch takes longer than _EVERY_SECONDS, so such a process is found in time. Freeing its memory takes longer
# than _LOOK_MS, so its code is seen. _LOOK_SEEN_MS is for processes that note their own end.
_LOOK_MS, _LOOK_SEEN_MS, _SETTLE_SECONDS = 4, 50, 2.0
# linux/pidfd.h: PIDFD_GET_INFO for the first form of struct pidfd_info, whose last number is the exit code.
_GET_INFO, _INFO_BYTES, _INFO_EXIT, _AT_CODE = 0xC040FF0B, 64, 8, 60
# linux/sched.h: PF_EXITING. Then the places of two fields of /proc/PID/stat, counted after the name.
_EXITING, _FLAGS, _CODE = 0x4, 6, 49
# The options with which Python ignores PYTHONPATH, or does not run sitecustomize.
_IGNORES = re.compile(r"-[bBdhiOPqRsuvVx]*[EIS]")


class Unseen:
    """Watches the processes below the rank `pid`, mainly those that note nothing themselves.

    `environment`: that with which the rank started.
    """

    def __init__(self, outcome: Path, environment: Mapping[str, str], pid: int) -> None:
        self._outcome, self._pid, self._next = outcome, pid, 0.0
        self._life, self._nodes = environment[rank_lives.LIFE], int(environment.get("WORLD_SIZE", "1"))
        self._slot = slot(environment)
        self._known, self._watched = set[int](), dict[int, threading.Thread]()

    def look(self) -> None:
        """Note new processes; this looks seldom enough to cost nothing."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_SECONDS
            # A loop in a shell may start hundreds of processes, one after another: forget those that have ended.
            self._known = set(filter(processes.is_alive, self._known))
            self._watched = {pid: watch for pid, watch in self._watched.items() if watch.is_alive()}
            self._look()

    def settle(self) -> None:
        """Wait until the ends of all ended processes have been noted."""
        for pid, thread in self._watched.items():
            if not processes.is_alive(pid):
                thread.join(_SETTLE_SECONDS)

    def _look(self) -> None:
        """Walk down from the rank, without recursion and with a limit: the script decides how many processes exist."""
        below = deque((pid, True) for pid in processes.children(self._pid))
        for _ in range(_MOST_LOOKED):
            if not below:
                return
            pid, is_top = below.popleft()
            with suppress(OSError, ValueError, RuntimeError):  # the process is gone, or no thread can be started
                below.extend(
                    (child, is_below) for is_below in self._look_at(pid, is_top) for child in processes.children(pid)
                )

    def _look_at(self, pid: int, is_top: bool) -> list[bool]:
        """Note a new process. Returns one value, whether its children are topmost, or none: do not look at these."""
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
        return [False] if self._nodes > 1 and not seen else []  # its children show whether several processes train

    def _note_new(self, pid: int, words: Sequence[str], variables: Mapping[str, str], is_top: bool) -> None:
        """Note a process. Only the end of a topmost one is watched, since each waits for those below it."""
        about, world = worlds.command_of(pid), self._world(words, variables)
        name = f"{pid}-{time.time_ns()}"
        if not is_top:
            if world:
                self._note(pid=pid, **about, **world)
            return
        self._note(pid=pid, **about, **world, process=name, script=worlds.program_of(words), outside=True)
        self._hold(pid, name, about["shell"], worlds.program_of(words))

    def _hold(self, pid: int, name: str, shell: list[str], script: str) -> None:
        """Start a thread that notes how a process ends: as `name`; without a name, only if it was killed."""
        about = {"pid": pid, **({"process": name} if name else {"lost": script, "shell": shell})}
        watch = threading.Thread(target=self._watch, args=(about,), daemon=True)
        self._watched[pid] = watch
        watch.start()

    def _world(self, words: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
        """Whether a process has joined other nodes or cannot; empty if the rank's own notes tell more."""
        own = [note for note in training_alone.notes(self._outcome) if self._slot.items() <= note.items()]
        if self._nodes < 2 or any("size" in note or "stepped" in note for note in own):
            return {}
        if nodes := variables.get("GROUP_WORLD_SIZE"):  # torchrun tells its ranks
            return {"unseen": True, "own": True} if nodes == "1" else {"joined": True}
        if launch := own_world.launch_of(words, variables):
            return launch
        return {"unseen": True} if own_world.lacks_run_variables(words, variables) else {}

    def _watch(self, about: dict[str, object]) -> None:
        """Note a process's exit code as soon as it has ended; None if the code is unknown."""
        pid, name, code = int(str(about["pid"])), about.get("process"), None
        with suppress(OSError):  # the process has just gone, or this container forbids pidfds
            code = _code_of(pid, _LOOK_MS if name else _LOOK_SEEN_MS)
        if name or (code is not None and code < 0):
            self._note(**about, code=code)

    def _note(self, **about: object) -> None:
        note(self._outcome, **{**self._slot, "t": time.time(), "life": self._life, **about})


def notes_itself(words: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether a Python with these words and variables runs the watcher, which notes its end."""
    options = list[str]()
    for word in words[1:]:
        if not word.startswith("-") or word in ("-m", "-c", "-"):
            break
        options.append(word)
    on_path = str(training_alone.SITE) in variables.get("PYTHONPATH", "").split(os.pathsep)
    blind = any(map(_IGNORES.match, options))
    return on_path and "MUSTER_OUTCOME_DIR" in variables and is_observed(variables) and not blind


def has_torch(pid: int) -> bool:
    """Whether a process has torch loaded. Raises OSError if the process is gone."""
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text(errors="replace")


def _code_of(pid: int, every_ms: int) -> int | None:
    """Wait for a process that is not a child, and return its code as in Popen; None if the kernel did not show it.

    Raises OSError if the process is gone.
    """
    handle = os.pidfd_open(pid)  # type: ignore[attr-defined,unused-ignore]
    try:
        status = _last_seen(pid, handle, every_ms)
        if status is None:  # its parent has taken the code
            info = bytearray(struct.pack("Q", _INFO_EXIT).ljust(_INFO_BYTES, b"\0"))
            fcntl.ioctl(handle, _GET_INFO, info)
            status = struct.unpack_from("i", info, _AT_CODE)[0] if info[0] & _INFO_EXIT else None
    except OSError:  # the kernel or the container does not offer it
        return None
    finally:
        os.close(handle)
    return None if status is None else os.waitstatus_to_exitcode(status)


def _keeps_codes() -> bool:
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 15)


def _last_seen(pid: int, handle: int, every_ms: int) -> int | None:
    """The code that /proc shows from when a process begins to exit until its parent has taken the code."""
    status, over, ended = None, False, select.poll()
    ended.register(handle, select.POLLIN)
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        while not over:
            over = bool(ended.poll(None if _keeps_codes() else every_ms))
            file.seek(0)
            fields = file.read().rpartition(b")")[2].split()
            if int(fields[_FLAGS]) & _EXITING:
                status = int(fields[_CODE])  # at first it is not set yet, so the last value counts
    return status
