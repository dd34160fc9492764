"""`muster status`, `muster gpus`, `muster runs --hosts`: ask all hosts in parallel. Changes nothing there.

A host that does not answer gets a line with the cause; the others are shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from ...core.errors import DONE, FAILED, DeployError, UsageError
from ...core.results import Results, all_faults
from ...door.session import Session, on_all, open_all
from ...host.gpus import Gpus
from ...host.status import HostStatus
from ...job.cluster import Cluster
from ...job.load import known_cluster, read_run
from ...job.option_words import command_of
from ...job.options import Options
from ...report import tables
from ...report.console import Console
from ...run.files import record
from ..start import observe
from . import ended

T = TypeVar("T")
_PATIENCE_S = 30.0


def status(options: Options, console: Console) -> int:
    """Show what runs on each host, its step and its rate. Returns 1 if a host did not answer.

    Raises UsageError for a run that no host has.
    """
    run, cluster = read_run(options.run), known_cluster(options)
    answers = ask(cluster, observe.status)
    if _is_unknown(answers, run):
        return _tell_end(cluster, answers, run, console)
    rows, values = tables.status_rows(answers.values, run), tables.status_values(answers.values, run)
    console.table(tables.STATUS_HEAD, rows, values)
    if rows and not console.as_json and not _runs(answers):
        _tell_last(cluster, console)
        answered = ",".join(by_typed(cluster, answers))
        console.hint(f"runs that have ended: {command_of('runs', hosts=answered)}")
    return _show_faults(answers, console)


def gpus(options: Options, console: Console) -> int:
    """Show who holds which GPU on each host. Returns 1 if a host did not answer or could not tell."""
    answers = ask(known_cluster(options), observe.gpus_of)
    shown = show_gpus(answers.values, console)
    return max(_show_faults(answers, console), shown)


def show_gpus(by_host: Mapping[str, Gpus], console: Console) -> int:
    """Show who holds which GPU. Returns 1 if a host could not tell."""
    values = ({"host": host, **tables.gpu_value(value)} for host, value in by_host.items())
    console.table(tables.GPUS_HEAD, tables.gpu_rows(by_host), values)
    return FAILED if any(value.fault for value in by_host.values()) else DONE


def runs(options: Options, console: Console) -> int:
    """List the runs that have a folder or a container on the hosts. Returns 1 if a host did not answer."""
    answers = ask(known_cluster(options), observe.runs)
    rows = tables.run_rows(answers.values)
    console.table(tables.RUNS_HEAD, rows, tables.run_values(answers.values))
    if answers.values and not rows:
        console.note("no runs there yet")
    return _show_faults(answers, console)


def ask(cluster: Cluster, look: Callable[[Session], T]) -> Results[T]:
    """The answer of each host that was reached, and the faults of all others."""
    with open_all(cluster.hosts, ask_home=False) as opened:
        sessions = list(opened.values.values())
        replies = on_all(sessions, look)
        answers: dict[str, T | DeployError] = {**opened.faults, **replies.values, **replies.faults}
        return Results({host: answers[host] for host in opened})


def by_typed(cluster: Cluster, answers: Results[T]) -> dict[str, T]:
    """The answers, keyed by the destination that a user types for the host."""
    return {host.destination: answers.values[host.name] for host in cluster.hosts if host.name in answers.values}


def _is_unknown(answers: Results[HostStatus], run: str) -> bool:
    """Whether no host has a container of the run. False if a host did not answer, because it may have one."""
    return bool(run) and not answers.faults and run not in _runs(answers)


def _tell_end(cluster: Cluster, answers: Results[HostStatus], run: str, console: Console) -> int:
    """Report how a run without containers ended. Raises UsageError if its end is unknown."""
    answers_of_runs = ask(cluster, observe.runs)
    known = by_typed(cluster, answers_of_runs)
    end = ended.end_of(run, known, time.time())
    if end is None:
        all_faults(answers_of_runs)
        runs = ", ".join(_runs(answers)) or "no runs"
        raise UsageError(f"{run} is not on these hosts: they have {runs}", "name one of those")
    console.line(end.message, {"kind": "ended", "run": run, "message": end.message})
    console.hint(end.hint)
    return DONE


def _tell_last(cluster: Cluster, console: Console) -> None:
    """Report how this folder's newest run ended, if these hosts had it: when nothing runs, people ask for that."""
    newest = record.newest(record.HOSTS)
    if not newest or not {*record.own_fields(newest).get("hosts", ())} & {host.destination for host in cluster.hosts}:
        return
    if end := record.read_json(newest / "outcome.json"):
        words = " ".join(str(end.get(name) or "").partition("\n")[0] for name in ("verdict", "message")).strip()
        console.note(f"{newest.name}: {words}: muster explain {newest.name}")


def _runs(answers: Results[HostStatus]) -> list[str]:
    return sorted({node.run for status in answers.values.values() for node in status.nodes})


def _show_faults(answers: Results[T], console: Console) -> int:
    console.table((), tables.fault_rows(answers.faults), tables.fault_values(answers.faults))
    for hint in dict.fromkeys(fault.hint for fault in answers.faults.values() if fault.hint and not console.as_json):
        console.hint(hint)
    return FAILED if answers.faults else DONE
