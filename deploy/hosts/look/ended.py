"""What commands report about a run that has ended: its containers are gone; its files are here or on its hosts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import DeployError, UsageError
from ...core.names import RunId
from ...core.results import Results, all_faults
from ...core.text import duration
from ...door.session import Session, on_all
from ...host import last_words
from ...host.facts import Container
from ...host.status import HostRun
from ...job.option_words import command_of
from ...report.console import Console
from ...report.text import fault_text
from ...run import outcome
from ...run.files import folders, record, recorded_ends
from ...run.progress import State
from .. import recorded, which_run
from ..start import observe


class RunEnded(DeployError):
    """A run has ended. `hosts` have its files; `outcome` is the content of outcome.json, if this machine has it."""

    def __init__(self, message: str, hint: str, run: RunId, hosts: Sequence[str], outcome: Mapping[str, Any]) -> None:
        super().__init__(message, hint)
        self.run, self.hosts, self.outcome = run, hosts, outcome


def refuse(run: str, sessions: Sequence[Session]) -> None:
    """Raise RunEnded, with the next command, if the given run has ended. Call it if no container of the run is left.

    If some host does not list its runs, it may have this one: the error then reports the faults of these hosts.
    """
    if run:
        answers = on_all(sessions, observe.runs)
        runs = {session.host.destination: answers.values.get(session.name, ()) for session in sessions}
        if fault := end_of(run, runs, time.time()):
            raise fault
        all_faults(answers)


def find_run(
    wanted: str, opened: Results[Session], containers: Results[tuple[Container, ...]]
) -> tuple[RunId, Mapping[str, Container]]:
    """Return the run that the user means, and its containers by host. DeployError: it has ended, or is not ours.

    If no answering host has the run, a host that does not answer may have it: the error then reports those hosts'
    faults.
    """
    runs = which_run.runs_of(containers.values)
    if wanted not in runs:
        which_run.refuse_foreign(wanted, containers.values)
    try:
        if wanted not in runs:
            refuse(wanted, list(opened.values.values()))
        run = which_run.choose_run(runs, wanted, recorded.unfinished_runs())
    except (UsageError, RunEnded) as end:
        if not getattr(end, "outcome", None):
            all_faults(opened, containers)
        raise
    return run, runs[run]


def show(end: RunEnded, sessions: Sequence[Session], console: Console) -> int:
    """Show how the run ended and which files remain; returns the run's own exit code.

    Without an outcome on this machine, its ranks' verdicts on the hosts count. Raises `end` if there are none.
    """
    if end.outcome:
        from ...report import ending  # it imports the page's modules: 40 ms that `muster status` can save

        fetch = command_of("fetch", hosts=",".join(end.hosts), run=end.run) if end.hosts else ""
        return ending.show_again(record.path_of(end.run), console, fetch)
    members = [session for session in sessions if session.host.destination in end.hosts]
    by_host, now = on_all(members, lambda each: last_words.of_run(each, end.run)).values, time.time()
    spoke = {host for host, of_host in by_host.items() if any(event["kind"] == "verdict" for event in of_host)}
    heard = sorted((event for of_host in by_host.values() for event in of_host), key=lambda event: event["t"])
    state = State(sorted({event["node"] for event in heard if event.get("node")}))
    for event in heard:
        state.apply(event, now)
    if not spoke:
        raise end
    result = outcome.conclude(state, now)
    # The node of a host without a verdict was killed: then "done" from the others is not the run's verdict.
    if result.verdict == "done" and len(spoke) < len(end.hosts):
        raise end
    why = f": {fault_text(vars(result))}" if result.message else ""
    text = f"{end.run} ended ({result.verdict}), as its ranks say{why}"
    console.line(text, {"kind": "ended", "run": end.run, "verdict": result.verdict, "message": result.message})
    console.hint(end.hint)
    return result.code


def end_of(run: str, runs: Mapping[str, Sequence[HostRun]], now: float) -> RunEnded | None:
    """Return an error that says that a run has ended, with the next command; None if its end is unknown.

    `runs`: the runs of each host, by the destination that a user types for it.
    """
    hosts = [host for host, on_host in runs.items() if any(each.run == run and each.changed for each in on_host)]
    folder = record.path_of(RunId(run))
    here = recorded_ends.end_of(folder) if record.own_fields(folder).get("backend") == record.HOSTS else {}
    verdict, t = here.get("verdict"), here.get("t")
    known = verdict and t is not None
    if not hosts and not known:
        return None
    ended = f"{run} ended ({verdict}) {duration(max(0.0, now - (t or 0.0)))} ago" if known else f"{run} has ended"
    if not hosts:
        hint = f"its report: {folders.display_path(folder)}"
        return RunEnded(f"{ended}; these hosts keep nothing of it", hint, RunId(run), hosts, here)
    logs, fetch = (command_of(task, hosts=",".join(hosts), run=run) for task in ("logs", "fetch"))
    return RunEnded(
        f"{ended}; no container of it is left, its files are on {', '.join(hosts)}",
        f"its logs: {logs}; its files: {fetch}",
        RunId(run),
        hosts,
        here if known else {},
    )
