"""What /proc tells of the processes of a node: which live, whose they are, what they were started with.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
# Places among the fields of /proc/PID/stat that stand behind the name.
STATE, PARENT, SESSION = 0, 1, 3


def stat(process: Path) -> list[str]:
    """What /proc says of a process or a thread, from its state on; nothing where it has ended."""
    with suppress(OSError):  # the name in parentheses may hold anything
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does; empty where there is none."""
    return "".join(stat(PROC / str(pid))[:1])


def exists(pid: int) -> bool:
    """Whether a process is there: one that has ended stays until its parent has taken its code."""
    with suppress(PermissionError):  # it is another user's
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return pid > 0


def lives(pid: int) -> bool:
    """Whether a process has not ended yet."""
    return exists(pid) and state_of(pid) not in ("Z", "X")


def of_sessions(sessions: Collection[int]) -> Iterator[tuple[int, int]]:
    """The processes of these sessions, each behind its session."""
    for pid, fields in all_stats().items() if sessions else ():
        if (session := int(fields[SESSION])) in sessions:
            yield session, pid


def all_stats() -> dict[int, list[str]]:
    """By process, what `stat` says of it."""
    return {int(path.name): fields for path in PROC.glob("[0-9]*") if (fields := stat(path))}


def children(pid: int) -> list[int]:
    """The children of a process, as far as the kernel tells."""
    pids = list[int]()
    for path in (PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError):
            pids += map(int, path.read_text().split())
    return pids


def texts(pid: int, name: str) -> list[str]:
    """What a process was started with: the words of its `cmdline`, or its `environ`. Raises OSError."""
    return (PROC / str(pid) / name).read_bytes().decode(errors="replace").rstrip("\0").split("\0")
