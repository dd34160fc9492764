"""The pipe that each local rank of a node prints into: the agent makes and reads it, torchrun's process hands it out.

The pipe is a named one in the node's private folder, and a file beside it says which rank writes into it now.
Standard library only.
"""

from __future__ import annotations

import array
import fcntl
import os
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# Another one at each start of a rank: `RANK-ATTEMPT-T`, which a launcher below it does not change. torchrun's own count
# stays where ranks restart for the fault of another node.
LIFE = "MUSTER_LIFE"
_SIZE = 1 << 20
_SET_SIZE = getattr(fcntl, "F_SETPIPE_SZ", None)  # Linux


def new_life(environment: Mapping[str, str]) -> str:
    """The value of LIFE for a rank that torchrun starts with `environment`."""
    return f"{environment.get('RANK', '')}-{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}-{time.time_ns()}"


def label(outcome: Path, local_rank: int) -> Path:
    """The file that says who writes: `RANK LIFE`."""
    return outcome / f"{local_rank}.writer"


def make(outcome: Path, local_rank: int) -> int:
    """Make the pipe and open it; returns a descriptor that reads without waiting, and never sees an end."""
    path = _path(outcome, local_rank)
    os.mkfifo(path, 0o600)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    with suppress(OSError):  # more than the system grants: a rank waits for us a little more often
        if _SET_SIZE:
            fcntl.fcntl(descriptor, _SET_SIZE, _SIZE)
    return descriptor


def claim(environment: Mapping[str, str]) -> Path | None:
    """The pipe of the rank that starts with `environment`, labelled as its; None where there is none."""
    outcome, local_rank, rank = (environment.get(name, "") for name in ("MUSTER_OUTCOME_DIR", "LOCAL_RANK", "RANK"))
    if not (outcome and local_rank.isdecimal() and rank.isdecimal()):
        return None
    path = _path(Path(outcome), int(local_rank))
    try:
        if not path.is_fifo():
            return None
        life = environment.get(LIFE, "0")
        label(Path(outcome), int(local_rank)).write_text(f"{int(rank)} {life}")
    except OSError:
        return None
    return path


def waiting(descriptor: int) -> int:
    """How many bytes are not read yet."""
    count = array.array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def _path(outcome: Path, local_rank: int) -> Path:
    return outcome / f"{local_rank}.output"
