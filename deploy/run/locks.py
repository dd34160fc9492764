"""Locks between commands on this machine: files held with flock, which the kernel releases when their holder dies.

Each run folder has one, so that two commands never drive one run. Each rendezvous port has one, so that two runs that
start at the same moment never take the same port. host/lock.py has the locks of hosts.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from ..core.errors import DeployError


class Lock:
    """A lock that we hold, until `release`, which also removes its file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def hold(path: Path) -> Lock | None:
    """Take the lock at `path`; None if somebody holds it."""
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
    """Take the lock of a run folder: one command at a time drives a run. None if another command does."""
    return hold(run_dir / ".lock")


def hold_port(port: int) -> Lock | None:
    """Take the lock of a port here: a run holds it from its choice until its end. None if another run holds it."""
    return hold(Path(tempfile.gettempdir()) / f"muster-{os.getuid()}-port-{port}.lock")


def _still_there(path: Path, descriptor: int) -> bool:
    """Whether the file we locked is the one at `path`: its last holder may have removed it under us."""
    try:
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False
