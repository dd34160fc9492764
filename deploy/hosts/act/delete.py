"""`muster down --hosts ... --run X --delete`: remove a run and everything that it wrote from its hosts.

It deletes only a run that has ended, and only the run's folder in the home of the login user.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...core.errors import DONE, BadAnswer, DeployError, UsageError
from ...core.names import RunId, check_typed, run_id
from ...core.text import amount, several
from ...door.session import Session, on_all, open_all
from ...host import audit, commands
from ...host import lock as host_lock
from ...host.reached import as_typed
from ...job.load import known_cluster
from ...job.option_words import command_of
from ...job.options import FLAG, Options
from ...report.console import Console
from .. import nodes
from ..start import observe

_DELETE_S = 3600.0
_DELETED = re.compile("deleted ([0-9]{1,13}) ([0-9]{1,13})")


class Deleted(NamedTuple):
    """How many files of a run were removed from a host, and their size in bytes."""

    files: int
    bytes: int


def delete(options: Options, console: Console) -> int:
    """Remove the run's containers and folders from all hosts, and report for each host how much that was.

    Raises DeployError, before it changes anything, if a host does not answer or the run still runs on one; after the
    deletion, with every host that failed.
    """
    run = check_typed(FLAG.run, options.run, run_id)
    with open_all(known_cluster(options).hosts) as opened:
        sessions = list(opened.all().values())
        # A deploy holds the same locks until its nodes run.
        with host_lock.lock_hosts(sessions, run):
            _refuse_running(run, sessions)
            nodes.remove(sessions, run).all()
            with console.waiting(f"deleting {run}"):
                deleted = on_all(sessions, lambda session: delete_folder(session, run))
        for host, (files, size) in deleted.values.items():
            words = f"deleted {several(files, 'file')}, {amount(size)}" if files else "nothing to delete"
            console.note(f"{host}: {words}")
            console.data({"kind": "deleted", "host": host, "run": run, "files": files, "bytes": size})
        deleted.all()
    return DONE


def _refuse_running(run: RunId, sessions: list[Session]) -> None:
    """Raise UsageError if the run still runs. Another user's run with the same name does not count."""
    containers = observe.containers(sessions, run).all()
    running = [host for host, nodes in containers.items() if any(node.ours and node.code is None for node in nodes)]
    if running:
        hosts = as_typed(sessions)
        raise UsageError(
            f"{run} is still running on {', '.join(running)}: nothing was deleted",
            f"stop it first: {command_of('stop', hosts=hosts, run=run)}",
        )


def delete_folder(session: Session, run: RunId) -> Deleted:
    """Remove the run's folder from a host. Raises BadAnswer, or DeployError if a container of ours uses it again."""
    if any(each.ours for each in observe.containers_of(session, run)):
        raise DeployError(
            "a container of the run exists again, so nothing was deleted",
            command_of("down", hosts=session.host.destination, run=run),
        )
    done = session.run(commands.script("delete", run), timeout_s=_DELETE_S, check=False)
    if done.code:
        why = done.err.strip().rpartition("\n")[2] or f"it ended with code {done.code}"
        raise DeployError(f"{run} was not deleted completely: {why}", f"look at it there: ls -lR ~/.muster/runs/{run}")
    deleted = deleted_of(done.out)
    if deleted.files:
        audit.note(session, audit.Action.DELETED, f"{deleted.files} files, {deleted.bytes} bytes", run)
    return deleted


def deleted_of(answer: str) -> Deleted:
    """Read the answer of scripts/delete.sh. Raises BadAnswer."""
    match = _DELETED.fullmatch(answer.strip())
    if match is None:
        raise BadAnswer("what was deleted", "`deleted FILES KILOBYTES`", answer[:200])
    return Deleted(int(match[1]), int(match[2]) << 10)
