"""The processes of a node from /proc: which are alive, whose they are, and with what they were started.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
# Indices of the fields of /proc/PID/stat that follow the process name.
STATE, PARENT, SESSION = 0, 1, 3


def stat(process: Path) -> list[str]:
    """The fields of /proc/.../stat for a process or a thread, from its state on; an empty list if it has ended."""
    with suppress(OSError):  # the name, in parentheses, may contain any characters
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def state_of(pid: int) -> str:
    """The kernel's letter for the state of a process; empty if there is no such process."""
    return "".join(stat(PROC / str(pid))[:1])


def exists(pid: int) -> bool:
    """Whether a process exists: one that has ended stays until its parent has collected its exit code."""
    with suppress(PermissionError):  # it belongs to another user
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return pid > 0


def is_alive(pid: int) -> bool:
    """Whether a process has not ended yet."""
    return exists(pid) and state_of(pid) not in ("Z", "X")


def of_sessions(sessions: Collection[int]) -> Iterator[tuple[int, int]]:
    """The processes of these sessions, as pairs of session and process."""
    for pid, fields in all_stats().items() if sessions else ():
        if (session := int(fields[SESSION])) in sessions:
            yield session, pid


def all_stats() -> dict[int, list[str]]:
    """The fields of `stat`, for every process."""
    return {int(path.name): fields for path in PROC.glob("[0-9]*") if (fields := stat(path))}


def children(pid: int) -> list[int]:
    """The children of a process; empty if the kernel does not list them."""
    pids = list[int]()
    for path in (PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError):
            pids += map(int, path.read_text().split())
    return pids


def texts(pid: int, name: str) -> list[str]:
    """The arguments with which a process was started (`cmdline`), or its variables (`environ`). Raises OSError."""
    return (PROC / str(pid) / name).read_bytes().decode(errors="replace").rstrip("\0").split("\0")
