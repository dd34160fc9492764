"""Locks between commands: a file held with flock, which the kernel lets go of when its holder dies.

One on each run's folder (two commands never drive one run), one on each port a run meets on (two runs started in the
same instant never take the same).
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from ..core.errors import DeployError


class Lock:
    """A held lock; `release` lets go and removes the file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    def release(self) -> None:
        """Let go. Calling it again does nothing."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def hold(path: Path) -> Lock | None:
    """Take the lock at `path`, or None when somebody holds it."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as fault:
            raise DeployError(f"{path}: cannot be locked: {fault.strerror}", f"look at it: ls -l {path}") from fault
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _still_there(path, descriptor):
            return Lock(path, descriptor)
        os.close(descriptor)


def hold_run(run_dir: Path) -> Lock | None:
    """One command at a time drives a run."""
    return hold(run_dir / ".lock")


def hold_port(port: int) -> Lock | None:
    """One run at a time takes a port of this machine, from choosing it until its end."""
    return hold(Path(tempfile.gettempdir()) / f"muster-{os.getuid()}-port-{port}.lock")


def _still_there(path: Path, descriptor: int) -> bool:
    """Whether the file we locked is the one at `path`: its last holder may have removed it under us."""
    try:
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False
