"""Which cause of the closed list (run/causes.py) each cause of docs/troubleshooting.md belongs to. Pure."""

from __future__ import annotations

from ..run.causes import Cause

_OF = {
    Cause.KILLED: "killed crashed architecture-differs",
    Cause.HOST_MEMORY: "host-memory",
    Cause.GPU_MEMORY: "gpu-memory",
    Cause.EXCEPTION: "exception script-error arguments checkpoint-broken checkpoint-mismatch cuda-fork "
    "device-assert group-small illegal-memory launcher-missing local-rank loss-nan models-differ module-missing "
    "parameter-twice pickle unused-parameters worker-failed",
    Cause.LEFT_EARLY: "left-early",
    Cause.STOPPED: "paused",
    Cause.ALONE: "trained-alone",
    Cause.MISMATCH: "collectives-differ",
    Cause.LOCKED_UP: "collective-timeout locked-up",
    Cause.NODE_LOST: "node-lost node-missing",
    Cause.CUT_OFF: "connection-cut container-bridge data-ports-dropped data-ports-rejected endpoint-foreign "
    "family-mixed host-unreachable link-local name-loopback no-route other-network rdma rdma-down rendezvous-dropped "
    "rendezvous-rejected same-hostname ssh-refused ssh-silent ssh-timeout",
    Cause.DISK_FULL: "disk-full disk-quota",
    Cause.DISK_SILENT: "disk-silent",
    Cause.CLOCK: "clock-skew",
    Cause.GPU_LOST: "gpu-faulty gpu-hidden gpu-lost gpu-xid",
    Cause.ENDED: "cancelled preempted ssh-hangup stopped time-limit",
}
_KINDS = {cause: kind for kind, causes in _OF.items() for cause in causes.split()}


def kind_of(cause: str) -> Cause:
    """The cause of the closed list; what is in none of its rows is a matter of set-up."""
    return _KINDS.get(cause, Cause.SET_UP) if cause else Cause.NOT_KNOWN
