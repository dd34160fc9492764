"""No process of a run outlives the process that started it: orphans would hold the GPUs and the ports.

A parent that ends gracefully asks it to stop: MUSTER_STOP_ON_EOF=1 means that the end of its input is this request.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(with_signal: signal.Signals, parent: int = 0) -> None:
    """Let the kernel send `with_signal` to this process when its parent ends. Does nothing except on Linux.

    `parent`: its process id, if it is known from before the fork; the parent may have ended since.
    """
    if sys.platform != "linux":
        return
    parent = parent or os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(with_signal))
    if os.getppid() != parent:  # the parent ended before the kernel was told
        os.kill(os.getpid(), with_signal)


def input_is_closed() -> bool:
    """Whether the end of its input asks this process to stop."""
    if os.environ.get("MUSTER_STOP_ON_EOF") != "1":
        return False
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable) and not os.read(0, 1024)
