"""Locks between commands on this machine: files held with flock, which the kernel releases when their holder dies.

Each run folder has one, so that two commands never drive one run. Each rendezvous port has one, so that two runs that
start at the same moment never take the same port. The files are in the user's own folders, because anybody who may
open a file can keep it locked. Every wait for a lock has a limit and reports who holds it. host/lock.py has the locks
of hosts.
"""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ...core.errors import DeployError
from ...core.printable import one_line
from ...core.text import in_seconds

_POLL_S = 0.1
# Where Linux lists the locks of all users.
_LISTED = "/proc/locks"


class Lock:
    """A lock that this process holds until `release`, which also removes its file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1


def hold(path: Path) -> Lock | None:
    """Take the lock at `path`; None if another process holds it."""
    while True:
        descriptor = -1
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_there(path, descriptor):
                return Lock(path, descriptor)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as fault:  # a link in the file's place, or an NFS without locks
            if descriptor >= 0:
                os.close(descriptor)
            raise DeployError(f"{path}: cannot be locked: {fault.strerror}", f"look at it: ls -l {path}") from fault
        os.close(descriptor)


def hold_run(run_dir: Path) -> Lock | None:
    """Take the lock of a run folder: one command at a time drives a run. None if another command does."""
    return hold(run_dir / ".lock")


def hold_followed(run_dir: Path) -> Lock | None:
    """Take the same lock to show that this command follows the run; None if it cannot, which does no harm."""
    with suppress(DeployError):  # a container or host that writes into the folder may have put a link there
        return hold_run(run_dir)
    return None


@contextmanager
def followed(run_dir: Path) -> Iterator[None]:
    """Show until the end of the `with` that this command starts or follows the run, if no other command does."""
    lock = hold_followed(run_dir)
    try:
        yield
    finally:
        if lock:
            lock.release()


def is_held(path: Path) -> bool:
    """Whether some process holds the lock at `path`, also one of another user. It is not taken to find out.

    Where the kernel lists no locks (macOS), it is taken for a moment.
    """
    if os.path.exists(_LISTED):
        return _holder(path) is not None
    if not os.path.lexists(path):
        return False
    with suppress(DeployError):
        if lock := hold(path):
            lock.release()
        return lock is None
    return False


def is_first_writer(file: BinaryIO) -> bool:
    """Whether this command should write a file: only the first of several does, until it ends.

    On a disk without locks, all of them do.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        pass
    return True


def hold_port(port: int) -> Lock | None:
    """Take the lock of a port on this machine: a run holds it from when it chooses the port until its end.

    None if another run holds it.
    """
    # Several machines may share a home, so the name has the machine's name.
    return hold(own_folder(cache_folder() / "ports") / f"{platform.node()}-{port}.lock")


def cache_folder() -> Path:
    """The folder for what one command keeps for the next: below $XDG_CACHE_HOME, or else ~/.cache. Raises DeployError.

    The path may contain a link to another disk. The result is the real path, so that writes go through no link.
    """
    with suppress(RuntimeError):  # a user number without a name has no home
        return Path(os.path.realpath(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"))
    raise DeployError("this user has no home", "set HOME to a folder of yours")


def own_folder(folder: Path) -> Path:
    """Make a folder that only this user may enter; if it exists, take the rights of others away. Raises DeployError."""
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as fault:
        raise DeployError(f"{folder}: cannot be made: {fault.strerror}", "set XDG_CACHE_HOME") from fault
    return folder


@contextmanager
def wait_for(path: Path, most_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock at `path` until the end of the `with`. If it must wait, `say` gets a text about who holds it.

    Raises DeployError if that process still holds it after `most_s`.
    """
    end, named = time.monotonic() + most_s, False
    while (lock := hold(path)) is None:
        if time.monotonic() > end:
            text = f"{path}: {keeper(path)} has kept it locked for {in_seconds(most_s)}"
            raise DeployError(text, "wait until that process ends, or end it")
        if not named:
            say(f"waiting for {keeper(path)}, which has locked {path}")
            named = True
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        lock.release()


def keeper(path: Path) -> str:
    """The process that keeps a file locked, in words; `another process` if this machine does not show it."""
    with suppress(OSError, ValueError):
        command = Path(f"/proc/{(pid := int(_holder(path) or ''))}/cmdline").read_bytes().decode(errors="replace")
        return f"process {pid} ({one_line(command.replace(chr(0), ' ')[:80].strip())})"
    return "another process"


def _holder(path: Path) -> str | None:
    """The number of the process that holds the lock at `path`, as the kernel lists it; None if nobody holds it."""
    with suppress(OSError):
        inode = str(path.lstat().st_ino)
        rows = map(str.split, Path(_LISTED).read_text().splitlines())
        return next((row[-4] for row in rows if row[1] == "FLOCK" and row[-3].rpartition(":")[2] == inode), None)
    return None


def _still_there(path: Path, descriptor: int) -> bool:
    """Whether the locked file is still the one at `path`: its last holder may have removed it in the meantime."""
    try:
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False
