"""The checks leave nothing behind: no process is left, and the GPUs are in the same state as before."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from ..bench import Bench
from ..finding import Finding, judge, untried
from ..processes import LABEL, labelled
from .facts import BEFORE, gpu_use

TITLE, LIMIT_S = "nothing is left behind", 30
# The driver frees memory a moment after a process has ended.
_PATIENCE_S, _TOLERANCE_MIB = 10.0, 64


def run(bench: Bench) -> Iterator[Finding]:
    """Processes of the earlier checks; processes and memory on the GPUs, compared with what `facts` recorded."""
    folders = [path for path in bench.folder.parent.iterdir() if path.is_dir() and path != bench.folder]
    left = [pid for folder in folders for pid in labelled(LABEL, str(folder))]
    yield judge("processes of the checks", not left, f"{len(left)} {left[:5] or ''}".strip(), "0")
    before = bench.folder.parent / BEFORE
    if not bench.gpus or not before.exists():
        yield untried("the GPUs as before", "no GPU" if not bench.gpus else "the check `facts` was left out")
        return
    was = json.loads(before.read_text())
    limit = time.monotonic() + _PATIENCE_S
    while (apart := changes(was, now := gpu_use())) and time.monotonic() < limit:
        time.sleep(0.5)
    measured = "; ".join(apart) or f"{now['used_mib']} MiB in use, as before"
    yield judge("the GPUs as before", not apart, measured, "no new process, no memory kept", before=was, after=now)


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is new on the GPUs; nothing if nvidia-smi did not answer."""
    new = sorted({*(after["pids"] or ())} - {*(before["pids"] or ())})
    differences = [f"new processes {', '.join(new)}"] if new else []
    for number, (was, now) in enumerate(zip(before["used_mib"] or (), after["used_mib"] or (), strict=False)):
        if now - was > _TOLERANCE_MIB:
            differences.append(f"GPU {number} holds {now - was} MiB more")
    return differences
