"""Which of the runs that hosts have this folder has recorded: the newest, and those without an end.

commands/where.py says where a command looks; which_run.py chooses among the runs that hosts have.
"""

from __future__ import annotations

from collections.abc import Container

from ..core.names import RunId
from ..run.files import record


def newest_of(runs: Container[str]) -> RunId | None:
    """The newest run that was deployed from this folder, if it is one of `runs`: hosts have those of others as well."""
    newest = record.newest(record.HOSTS)
    return RunId(newest.name) if newest and newest.name in runs else None


def without_end() -> frozenset[str]:
    """The runs of this folder whose end is not known here: of several on the hosts, these are meant."""
    return frozenset(path.name for path in record.without_end(record.HOSTS))
