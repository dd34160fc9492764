"""Which disk a process waits for, in a system call that no signal ends; and whether its cgroup is frozen.

If an NFS server is dead, a FUSE program does not answer or a disk is broken, the kernel blocks the thread until it gets
an answer. The names come from /proc alone, because accessing the file itself would block as well. Standard library
only.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from .. import processes

_LONGEST = 1024
# Kernel functions that wait for a file system's server; the process seems to sleep normally until it gets a signal.
_SERVERS = ("request_wait_answer", "fuse_", "rpc_wait", "nfs", "cifs_", "wait_for_response", "ceph_")
# The functions in which a thread of a frozen cgroup waits, in version 1 and version 2 of cgroups; no disk is involved.
_FREEZER = ("__refrigerator", "do_freezer_trap")
_UNSEEN = "a disk or a network file system"


def waiting(session: int) -> dict[tuple[int, int], str]:
    """By process and thread of a rank's session: the disk that the thread waits for, in words."""
    return {
        (pid, thread): words_of(pid, thread)
        for _, pid in processes.of_sessions([session])
        for thread in _threads(pid)
        if _waits(pid, thread)
    }


def is_frozen(pid: int) -> bool:
    """Whether the cgroup of a process is frozen."""
    return wait_of(pid, pid) in _FREEZER


def _waits(pid: int, thread: int) -> bool:
    """Whether a thread waits in a system call that no signal ends, or for a file system's server."""
    where = wait_of(pid, thread)
    in_kernel = processes.stat(Path(f"/proc/{pid}/task/{thread}"))[:1] == ["D"] and where not in _FREEZER
    return in_kernel or where.startswith(_SERVERS)


def words_of(pid: int, thread: int) -> str:
    """`/data/x on /data (nfs4 server:/export)`, or what else the kernel shows about the thread's system call."""
    path = _path_of_call(pid, thread)
    if path:
        return f"{path}{_file_system(pid, path)}"
    where = wait_of(pid, thread)
    return f"{_UNSEEN} (in the kernel's {where[:60]})" if where not in ("", "0") else _UNSEEN


def wait_of(pid: int, thread: int) -> str:
    """The kernel function in which a thread waits; empty if this process may not read it."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/task/{thread}/wchan").read_text().strip()
    return ""


def _threads(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def _path_of_call(pid: int, thread: int) -> str:
    """The file of a thread's current system call, from the call's descriptor argument or its path argument."""
    with suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{pid}/task/{thread}/syscall").read_text().split()
        first, second = int(words[1], 16), int(words[2], 16)
        if first < 1 << 20:
            with suppress(OSError):
                if (file := os.readlink(f"/proc/{pid}/fd/{first}")).startswith("/"):
                    return file[:_LONGEST]
        for pointer in (second, first):
            if (path := _text_at(pid, pointer)).startswith("/"):
                return path
    return ""


def _text_at(pid: int, pointer: int) -> str:
    with suppress(OSError, ValueError, OverflowError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(pointer)
        return memory.read(_LONGEST).partition(b"\0")[0].decode(errors="replace")
    return ""


def _file_system(pid: int, path: str) -> str:
    """` on PLACE (TYPE SOURCE)`, for the mount that contains the path; of several, the deepest one."""
    best, words = "", ""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/mountinfo").read_text(errors="replace").splitlines():
            before, _, after = line.partition(" - ")
            place = re.sub(r"\\040", " ", before.split()[4])
            if len(place) >= len(best) and f"{path}/".startswith(f"{place.rstrip('/')}/"):
                best, words = place, " ".join(after.split()[:2])
    return f" on {best} ({words})"[:200] if best else ""
