"""Start a run on any backend: lock, check, record, prepare, start.

Until its nodes run, any failure and any Ctrl-C undoes everything. After that follow.py follows the run.
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
    """Start every node of a run, or undo everything and raise the failure or the interruption.

    `open_record` writes this start into the run folder and returns what record.undo_start needs; so does this function.
    From the call of `hold` on, nothing may be interrupted. `resumed`: the run folder holds earlier starts and stays.
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
        # Without a record there is no start to undo. If nodes may be left, the folder stays and leads the user to them.
        if undone and (before or not resumed):
            with suppress(OSError):
                record.undo_start(run_dir, before)
        raise
    return before
