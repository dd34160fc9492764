"""`muster down --run X --delete`: remove a run on this machine and everything that it wrote."""

from __future__ import annotations

import os
import shutil

from ..core.errors import DONE, DeployError, UsageError
from ..core.names import check_typed, run_id
from ..core.text import amount, several
from ..engine import client
from ..job.option_words import command_of
from ..job.options import FLAG
from ..report.console import Console
from ..run.files import folders, locks, record
from ..run.files.folders import display_path
from . import attach, backends


def delete(name: str, console: Console) -> int:
    """Remove the folder of a run that has ended, and report its size; return the exit code.

    Raises UsageError if the run is not here, still runs, or ran on hosts: a copy of results is not a run of this
    machine. Raises DeployError if the folder cannot be removed completely.
    """
    run = check_typed(FLAG.run, name, run_id)
    run_dir = record.path_of(run)
    folders.ask_link(folders.RUNS)
    if run_dir.is_symlink() or not run_dir.is_dir():
        raise UsageError(f"{FLAG.run} {run}: no such run here", "`muster runs` lists them")
    if hosts := [str(host) for host in record.facts(run_dir).get("hosts", ())]:
        # The hosts that this user typed may appear in a suggested command; those from a record that another user wrote
        # may not.
        own = ",".join(map(str, record.own_fields(run_dir).get("hosts", ()))) or "HOSTS"
        command = command_of("down", hosts=own, run=run, delete=True)
        where = f"it ran on {', '.join(hosts)}, and only fetched files are here"
        raise UsageError(
            f"{FLAG.run} {run} {FLAG.delete}: {where}: nothing was deleted",
            f"on the hosts: {command}; the copy here: rm -r {display_path(run_dir)}",
        )
    files, size = record.contents(run_dir)
    attach.refuse_silent(engine := client.find_engine())
    lock = locks.hold_run(run_dir)
    if lock is None or run in backends.running(folders.RUNS, engine):
        if lock:
            lock.release()
        raise UsageError(
            f"{run} is still running: nothing was deleted", f"stop it first: {command_of('down', run=run)}"
        )
    try:
        shutil.rmtree(run_dir)
    except OSError as fault:
        where = f"look at it: ls -lR {display_path(run_dir)}"
        raise DeployError(f"{run} was not deleted completely: {fault.filename}: {fault.strerror}", where) from fault
    finally:
        lock.release()
    latest = folders.RUNS.joinpath("latest")
    if latest.is_symlink() and os.readlink(latest) == run:
        record.point_to_newest(folders.RUNS)
    console.note(f"deleted {run}: {several(files, 'file')}, {amount(size)}")
    console.data({"kind": "deleted", "run": run, "files": files, "bytes": size})
    return DONE
