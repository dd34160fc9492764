"""`muster fetch`: copy a run's folder from its hosts to this machine (host/files/gather.py). The run is not touched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...core.names import RunId
from ...core.results import all_faults
from ...door.session import on_all, open_all
from ...host.files import gather
from ...job.load import known_cluster, read_run
from ...job.options import FLAG, Options
from ...report.console import Console
from ...report.page import run as page
from ...run.files import folders, record
from .. import recorded, which_run
from ..start import observe

# The folder inside a run's folder in which its script works (contract.md).
_WORK = "work"


def fetch(options: Options, console: Console) -> Path:
    """Copy a run's folder, or what matches --only, from every host, and build its page; returns the local run folder.

    Raises DeployError with every host that failed, after it has merged what the others sent and what the failed ones
    sent before they failed.
    """
    asked_for = read_run(options.run)
    with open_all(known_cluster(options).hosts) as opened:
        sessions = list(opened.values.values())
        answers = on_all(sessions, observe.run_folders)
        runs = sorted(frozenset[RunId]().union(*answers.values.values()))
        if asked_for not in runs:  # a host that did not answer may have the run
            all_faults(opened, answers)
        run = _choose(asked_for, runs, console)
        run_dir = record.folder_of(run)
        members = [session for session in sessions if run in answers.values.get(session.name, ())]
        faults = gather.gather(members, run, options.only, run_dir, console)
        page.write(run_dir)
        if (run_dir / _WORK).is_dir():
            console.note(f"the script's files are in {folders.display_path(run_dir / _WORK)}")
        all_faults(opened, answers, *faults)
        return run_dir


def _choose(run: str, runs: Sequence[RunId], console: Console) -> RunId:
    """The run that was named, the only one, or the newest one deployed from this folder. Raises UsageError."""
    if not run and len(runs) != 1 and (newest := recorded.newest_of(runs)):
        console.note(f"{newest} is the newest run of this folder; {FLAG.run} ID fetches another one")
        return newest
    return which_run.choose_run({each: {} for each in runs}, run)
