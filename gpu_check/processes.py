"""Find processes by a variable in their environment, which their children inherit. Linux only, through /proc."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from trainer.node.processes import is_alive

# The value of this variable is the folder of the process's check.
LABEL = "GPU_CHECK_FOLDER"
_POLL_S = 0.02


def labelled(name: str, value: str) -> list[int]:
    """Ids of all other living processes whose environment began with `name=value`."""
    wanted, pids = f"{name}={value}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment = (folder / "environ").read_bytes()
            if wanted in environment.split(b"\0") and int(folder.name) != os.getpid() and is_alive(int(folder.name)):
                pids.append(int(folder.name))
    return pids


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each of these processes that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def end(name: str, value: str, patience_s: float = 10.0) -> int:
    """Kill all labelled processes; returns how many still run after `patience_s`."""
    # Repeated until there is none: the list does not contain a process that was just being forked.
    limit = time.monotonic() + patience_s
    while (pids := labelled(name, value)) and time.monotonic() < limit:
        send(pids, signal.SIGKILL)
        time.sleep(_POLL_S)
    return len(pids)
