"""How a run starts, on any backend: lock, check, record, prepare, start.

Until its nodes run, any failure and any Ctrl-C takes everything back. From then on the run is followed (follow.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from . import record
from .backend import Backend


def launch(
    backend: Backend,
    run_dir: Path,
    resumed: bool,
    open_record: Callable[[], dict[str, bytes]],
    hold: Callable[[], None],
) -> dict[str, bytes]:
    """Start every node of a run, or leave nothing of it. Raises DeployError, KeyboardInterrupt.

    `open_record` writes this start into the run folder; what it returns is returned, and unmakes it
    (record.undo_start). `hold` is called once nothing may be interrupted any more. `resumed`: the run folder holds
    earlier starts, and stays.
    """
    before = dict[str, bytes]()
    try:
        with backend.lock():
            backend.check()
            before = open_record()
            backend.prepare()
            _start(backend, hold)
    except BaseException:
        hold()
        if before or not resumed:  # a run that was only looked at has nothing to take back
            with suppress(OSError):
                record.undo_start(run_dir, before)
        raise
    return before


def _start(backend: Backend, hold: Callable[[], None]) -> None:
    try:
        backend.start()
        hold()
    except BaseException:
        hold()
        backend.undo()
        raise
