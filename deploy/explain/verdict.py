"""What a run's verdict adds where its output does not tell the cause: a rank that is killed writes nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..run.causes import Cause
from .cause import Explanation
from .signs import KERNEL

# The entry of docs/troubleshooting.md. The other causes have several, or none.
_ENTRIES = {
    Cause.KILLED: "killed",
    Cause.HOST_MEMORY: "host-memory",
    Cause.NODE_LOST: "node-lost",
    Cause.DISK_FULL: "disk-full",
}


def with_verdict(explanation: Explanation, outcome: Mapping[str, Any]) -> Explanation:
    """The explanation, or what the run's outcome.json says of its end if the output shows no cause.

    Its followers saw what no log has: how the engine says that a container ended, and which host did not answer.
    """
    message, node, rank = (outcome.get(name) for name in ("message", "node", "rank"))
    if explanation.cause or outcome.get("verdict") != "failed" or not (message and node):
        return explanation
    cause = _ENTRIES.get(outcome.get("cause", ""), "")
    if explanation.maybe and not cause:  # the output says more than the verdict, though nothing sure
        return explanation
    first = f"rank {rank} on {node}" if isinstance(rank, int) else f"{node}"
    what = f"{str(message).splitlines()[0]} (the run's own verdict)"
    return replace(explanation, cause=cause, maybe=(), what=what, first=first, evidence=(), silent=(), next=KERNEL)
