"""The pipe into which each local rank of a node prints: the agent makes and reads it, torchrun's process hands it out.

torchrun's process inherits all pipes, in the order of the local ranks, and gives each rank its own. Which life of a
rank currently writes into its pipe is known from the note of its begin (ending/rank_lives.py). Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import suppress

# The variable that gives torchrun's process the descriptors, separated by commas. No rank gets it.
PIPES = "MUSTER_PIPES"
_SIZE = 1 << 20


def make() -> tuple[int, int]:
    """A pipe: a descriptor that reads without blocking, and one for a rank. Reading ends when no one has that open."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with suppress(OSError):  # if the system refuses that size, ranks only wait for the agent a little more often
        if sys.platform == "linux":
            fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, _SIZE)
    return reading, writing


def pipe_variables(pipes: Sequence[int]) -> dict[str, str]:
    """The variables for torchrun's process, which inherits these descriptors."""
    return {PIPES: ",".join(map(str, pipes))}


def take_pipes(environment: MutableMapping[str, str]) -> list[int]:
    """Take the inherited descriptors out of the environment; no program that this process starts inherits them all."""
    pipes = [int(each) for each in environment.pop(PIPES, "").split(",") if each]
    for each in pipes:
        os.set_inheritable(each, False)
    return pipes


def pipe_of_rank(pipes: Sequence[int], local_rank: int) -> int | None:
    """The descriptor for a local rank that is about to start, set to block as usual; None if there is none."""
    if local_rank >= len(pipes):
        return None
    os.set_blocking(pipes[local_rank], True)  # in the rank's earlier life, asyncio, for example, may have changed that
    return pipes[local_rank]


def is_unread(descriptor: int) -> bool:
    """Whether there is something to read."""
    return bool(select.select([descriptor], [], [], 0)[0])
