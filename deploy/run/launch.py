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
    """Start every node of a run, or leave nothing of it: what failed or was interrupted is raised.

    `open_record` writes this start into the run folder; what it returns is returned, and unmakes it
    (record.undo_start). `hold` is called once nothing may be interrupted any more. `resumed`: the run folder holds
    earlier starts, and stays.
    """
    before, undone = dict[str, bytes](), True
    try:
        with backend.lock():
            backend.check()
            before = open_record()
            backend.prepare()
            try:
                backend.start()
                hold()
            except BaseException:
                hold()
                undone = False
                backend.undo()
                undone = True
                raise
    except BaseException:
        hold()
        # A run that was only looked at has no start to forget; one whose nodes may be left is found by its folder.
        if undone and (before or not resumed):
            with suppress(OSError):
                record.undo_start(run_dir, before)
        raise
    return before
