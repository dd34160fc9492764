"""The closed list of causes why a run broke, used by a run's own inquest and by `muster explain`. Pure.

The meaning of a slug never changes: records, `--json` and the benchmark compare slugs.
"""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Why a run broke. The value is the slug; its comment says what happened to the culprit, or what it did."""

    KILLED = "killed"  # was killed by a signal (a crash in native code ends with one too)
    HOST_MEMORY = "host-out-of-memory"  # was killed because its host ran out of memory
    CONTAINER_MEMORY = "container-out-of-memory"  # was killed because its container ran out of memory
    GPU_MEMORY = "gpu-out-of-memory"  # ran out of memory on its GPU
    EXCEPTION = "exception"  # failed with an exception
    LEFT_EARLY = "left-early"  # left before the others, without an exception
    STOPPED = "stopped"  # is stopped: by SIGSTOP, or because its container is paused
    LOCKED_UP = "locked-up"  # is alive but no longer moves: it waits for something of its own, or computes forever
    MISMATCH = "mismatched-collectives"  # called a different collective from the others, or one of a different size
    NODE_LOST = "node-lost"  # is gone: the host, its engine or the node's container
    CUT_OFF = "cut-off"  # cannot be reached from one of the others, or cannot reach it
    DISK_FULL = "disk-full"  # has no room left on its disk, or in its quota
    DISK_SILENT = "disk-silent"  # waits for a disk or a network file system that does not answer
    ALONE = "trained-alone"  # trained alone: no process group joined it to the others
    SLOW = "slow"  # holds up all others: the rank, its host or its link
    CORRUPT_WEIGHTS = "corrupt-weights"  # has different weights from the other replicas
    CLOCK = "clock"  # has a clock that jumped, or differs from the others'
    GPU_LOST = "gpu-lost"  # lost its GPU, or its GPU failed
    # could not start or continue: its host, image, packages, network settings or access are not fit for it
    SET_UP = "set-up"
    ENDED = "ended-from-outside"  # was ended by a scheduler, by a person, or with its terminal
    NOT_KNOWN = "not-known"  # could not be determined

    @classmethod
    def of_slug(cls, slug: object) -> Cause | None:
        """Return the cause with this slug; None for any other text, because a host may have written it."""
        return cls(slug) if isinstance(slug, str) and slug in set(cls) else None

    @property
    def entry(self) -> str:
        """The slug of the row that tells more about it; empty if there is none, or an exception's text decides it."""
        return _ENTRIES.get(self, "")


_ENTRIES = {
    Cause.KILLED: "killed",
    Cause.HOST_MEMORY: "host-memory",
    Cause.CONTAINER_MEMORY: "host-memory",
    Cause.GPU_MEMORY: "gpu-memory",
    Cause.LEFT_EARLY: "left-early",
    Cause.STOPPED: "paused",
    Cause.LOCKED_UP: "locked-up",
    Cause.MISMATCH: "collectives-differ",
    Cause.NODE_LOST: "node-lost",
    Cause.CUT_OFF: "connection-cut",
    Cause.DISK_FULL: "disk-full",
    Cause.DISK_SILENT: "disk-silent",
    Cause.ALONE: "trained-alone",
    Cause.CLOCK: "clock-skew",
    Cause.GPU_LOST: "gpu-lost",
    Cause.ENDED: "stopped",
}
