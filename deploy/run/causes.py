"""The closed list of why a run broke: for the inquest over a run's own facts, and for `fab explain`. Pure.

A slug never changes its meaning: records, `--json` and the benchmark compare it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Why a run broke. The value is the slug, `words` is how a sentence begins that names it."""

    KILLED = "killed"
    HOST_MEMORY = "host-out-of-memory"
    CONTAINER_MEMORY = "container-out-of-memory"
    GPU_MEMORY = "gpu-out-of-memory"
    EXCEPTION = "exception"
    LEFT_EARLY = "left-early"
    STOPPED = "stopped"
    LOCKED_UP = "locked-up"
    MISMATCH = "mismatched-collectives"
    NODE_LOST = "node-lost"
    CUT_OFF = "cut-off"
    DISK_FULL = "disk-full"
    DISK_SILENT = "disk-silent"
    ALONE = "trained-alone"
    SLOW = "slow"
    CORRUPT_WEIGHTS = "corrupt-weights"
    CLOCK = "clock"
    GPU_LOST = "gpu-lost"
    SET_UP = "set-up"
    ENDED = "ended-from-outside"
    NOT_KNOWN = "not-known"

    @classmethod
    def of_slug(cls, slug: object) -> Cause | None:
        """The cause of this name; None for any other text, which a host may have written."""
        return cls(slug) if isinstance(slug, str) and slug in set(cls) else None

    @property
    def words(self) -> str:
        """What happened to the culprit, or what it did."""
        return _WORDS[self]


_WORDS = {
    Cause.KILLED: "was killed by a signal (a crash in native code ends with one too)",
    Cause.HOST_MEMORY: "was killed because its host ran out of memory",
    Cause.CONTAINER_MEMORY: "was killed because its container ran out of memory",
    Cause.GPU_MEMORY: "ran out of memory on its GPU",
    Cause.EXCEPTION: "failed with an exception",
    Cause.LEFT_EARLY: "left before the others, without an exception",
    Cause.STOPPED: "is stopped: by SIGSTOP, or because its container is paused",
    Cause.LOCKED_UP: "is alive but no longer moves: it waits for something of its own, or computes forever",
    Cause.MISMATCH: "called another collective than the others, or one of another size",
    Cause.NODE_LOST: "is gone: the host, its engine or the node's container",
    Cause.CUT_OFF: "cannot be reached from one of the others, or cannot reach it",
    Cause.DISK_FULL: "has no room left on its disk, or in its quota",
    Cause.DISK_SILENT: "waits for a disk or a network file system that does not answer",
    Cause.ALONE: "trained alone: no process group joined it to the others",
    Cause.SLOW: "holds up all others: the rank, its host or its link",
    Cause.CORRUPT_WEIGHTS: "has other weights than the other replicas",
    Cause.CLOCK: "has a clock that jumped, or differs from the others'",
    Cause.GPU_LOST: "lost its GPU, or its GPU failed",
    Cause.SET_UP: "could not start or go on: its host, image, packages, network settings or access are not fit for it",
    Cause.ENDED: "was ended by a scheduler, by a person, or with its terminal",
    Cause.NOT_KNOWN: "could not be told",
}


@dataclass(frozen=True)
class Finding:
    """A cause, its culprit and a sentence about it. `other`: of a link that fails the other node.

    `lasting`: the run can go on in spite of it. `t`: since when, by this machine's clock.
    """

    cause: Cause
    message: str
    node: str = ""
    rank: int | None = None
    other: str = ""
    t: float = 0.0
    lasting: bool = False

    @property
    def key(self) -> tuple[Cause, str, int | None, str]:
        """What is the same in two findings of one thing."""
        return self.cause, self.node, self.rank, self.other
