"""Which runs on the hosts were recorded in this folder: the newest, and those without a recorded end.

commands/where.py decides where a command looks; which_run.py chooses among the runs that hosts have.
"""

from __future__ import annotations

from collections.abc import Container

from ..core.names import RunId
from ..run.files import record


def newest_of(runs: Container[str]) -> RunId | None:
    """The newest run deployed from this folder, if it is one of `runs`: the hosts also have runs from other folders."""
    newest = record.newest(record.HOSTS)
    return RunId(newest.name) if newest and newest.name in runs else None


def unfinished_runs() -> frozenset[str]:
    """The runs of this folder without a recorded end. Among several runs on the hosts, the user means one of these."""
    return frozenset(path.name for path in record.without_end(record.HOSTS))
