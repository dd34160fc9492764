"""The lock that each save holds, so that only one process at a time writes the checkpoints of a run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def locked(run_folder: Path) -> Iterator[bool]:
    """Wait until no other process writes to the checkpoints of `run_folder`; False if the file system has no locks.

    The lock belongs to the process, not to one of its threads.
    """
    descriptor, held = -1, False
    with suppress(OSError):
        descriptor = os.open(run_folder / ".saving", os.O_RDWR | os.O_CREAT, 0o644)
        # Not flock: data-loader processes would keep holding it after their rank was killed.
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        held = True
    try:
        yield held
    finally:
        if descriptor >= 0:
            os.close(descriptor)
