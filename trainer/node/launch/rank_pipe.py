"""The pipe that each local rank of a node prints into: the agent makes and reads it, torchrun's process hands it out.

torchrun's process inherits them all, in the order of the local ranks, and gives each rank its own. Whose words come
now, the note of its begin says (ending/rank_lives.py). Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import suppress

# To torchrun's process: the descriptors, with commas. No rank gets it.
PIPES = "MUSTER_PIPES"
_SIZE = 1 << 20


def make() -> tuple[int, int]:
    """A pipe: a descriptor that reads without waiting, and sees no end while the other one, for a rank, is open."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with suppress(OSError):  # more than the system grants: a rank waits for us a little more often
        if sys.platform == "linux":
            fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, _SIZE)
    return reading, writing


def given(pipes: Sequence[int]) -> dict[str, str]:
    """What torchrun's process, which inherits these descriptors, gets in its environment."""
    return {PIPES: ",".join(map(str, pipes))}


def claim(environment: MutableMapping[str, str]) -> list[int]:
    """Those that this process has inherited, taken out of its environment: none of its programs inherits them all."""
    pipes = [int(each) for each in environment.pop(PIPES, "").split(",") if each]
    for each in pipes:
        os.set_inheritable(each, False)
    return pipes


def of_rank(pipes: Sequence[int], local_rank: int) -> int | None:
    """The one for a local rank that is about to start; None where there is none. It waits for a reader, as ever."""
    if local_rank >= len(pipes):
        return None
    os.set_blocking(pipes[local_rank], True)  # asyncio, say, has changed that for the life before
    return pipes[local_rank]


def is_unread(descriptor: int) -> bool:
    """Whether there is something to read."""
    return bool(select.select([descriptor], [], [], 0)[0])
