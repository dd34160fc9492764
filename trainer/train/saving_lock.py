"""One process at a time writes into the checkpoints of a run: the lock that each save holds."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def alone(run_folder: Path) -> Iterator[bool]:
    """Wait until no other process writes into the checkpoints of `run_folder`; False where a file system has no locks.

    A process has the lock once, whichever of its threads asks.
    """
    descriptor, held = -1, False
    with suppress(OSError):
        descriptor = os.open(run_folder / ".saving", os.O_RDWR | os.O_CREAT, 0o644)
        # Not flock: processes that load data would hold it for a rank that was killed.
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        held = True
    try:
        yield held
    finally:
        if descriptor >= 0:
            os.close(descriptor)
