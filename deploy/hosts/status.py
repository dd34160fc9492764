"""Look at real hosts, all at once and in one round trip each: `fab status`, `fab gpus`. Nothing there is changed.

A host that does not answer is a line with its cause; the others are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..config.inventory import Cluster
from ..core.errors import DONE, FAILED, DeployError, UsageError
from ..core.names import asked_run
from ..core.results import Results
from ..host import gpus as gpu_facts
from ..host import look_commands
from ..host import status as host_status
from ..host.status import HostStatus
from ..report import tables
from ..report.console import Console
from ..ssh.session import on_all, open_all

T = TypeVar("T")
_PATIENCE_S = 30.0


def status(cluster: Cluster, run: str, console: Console) -> int:
    """What runs on each host, how far and how fast it is; returns 1 when a host did not answer.

    Raises UsageError for a run that is on none of them.
    """
    run = asked_run("--run", run)
    found = _ask(cluster, look_commands.status(), host_status.parse)
    _refuse_unknown(found, run)
    if console.as_json:
        console.values(tables.status_values(found.values, run))
    elif found.values:
        console.table(tables.STATUS_HEAD, tables.status_rows(found.values, run))
    return _tell_faults(found, console)


def gpus(cluster: Cluster, console: Console) -> int:
    """Who holds which GPU on each host; returns 1 when a host did not answer or could not tell."""
    found = _ask(cluster, look_commands.holders(), lambda said: gpu_facts.parse(said.split("\n")))
    if console.as_json:
        console.values([{"host": host, **tables.gpu_value(value)} for host, value in found.values.items()])
    elif found.values:
        console.table(tables.GPUS_HEAD, tables.gpu_rows(found.values))
    untold = any(value.fault for value in found.values.values())
    return max(_tell_faults(found, console), FAILED if untold else DONE)


def runs(cluster: Cluster, console: Console) -> int:
    """The runs that have left something on the hosts; returns 1 when a host did not answer."""
    found = _ask(cluster, look_commands.runs(), host_status.parse_runs)
    rows = tables.run_rows(found.values)
    if console.as_json:
        console.values(tables.run_values(found.values))
    elif rows:
        console.table(tables.RUNS_HEAD, rows)
    elif found.values:
        console.note("no runs there yet")
    return _tell_faults(found, console)


def _ask(cluster: Cluster, command: Sequence[str], read: Callable[[str], T]) -> Results[T]:
    """The answer of each host that was reached; the faults of all others."""
    with open_all(cluster.hosts, ask_home=False) as opened:
        sessions = list(opened.values.values())
        told = on_all(sessions, lambda session: read(session.run(command, timeout_s=_PATIENCE_S).out))
        answers: dict[str, T | DeployError] = {**opened.faults, **told.values, **told.faults}
        return Results({host: answers[host] for host in opened})


def _refuse_unknown(found: Results[HostStatus], run: str) -> None:
    there = sorted({node.run for status in found.values.values() for node in status.nodes})
    # A host that did not answer may have it.
    if run and run not in there and not found.faults:
        raise UsageError(f"{run} is not on these hosts: there are {', '.join(there) or 'none'}", "name one of those")


def _tell_faults(found: Results[T], console: Console) -> int:
    if console.as_json:
        console.values(tables.fault_values(found.faults))
    elif found.faults:
        console.table((), tables.fault_rows(found.faults))
        for hint in dict.fromkeys(fault.hint for fault in found.faults.values() if fault.hint):
            console.hint(hint)
    return FAILED if found.faults else DONE
