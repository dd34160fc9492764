"""What a command says of a run that has ended: no container of it is left, but its files are here or on its hosts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ..core.errors import DeployError
from ..core.names import RunId
from ..core.program import FAB
from ..core.text import duration
from ..host import commands
from ..host import status as host_status
from ..host.status import HostRun
from ..run import folders, record
from ..ssh.session import Session, on_all

_PATIENCE_S = 30.0


def refuse(run: str, sessions: Sequence[Session]) -> None:
    """Raise DeployError with the next command if the run that the user named has ended. Call it if nobody runs it."""
    if run:
        answers = on_all(
            sessions, lambda each: host_status.parse_runs(each.run(commands.runs(), timeout_s=_PATIENCE_S).out)
        )
        if fault := end_of(run, answers.values, time.time()):
            raise fault


def end_of(run: str, runs: Mapping[str, Sequence[HostRun]], now: float) -> DeployError | None:
    """That a run has ended, as a fault with the next command; None if nobody knows it. `runs`: those of each host."""
    hosts = [host for host, on_host in runs.items() if any(each.run == run and each.changed for each in on_host)]
    folder = record.path_of(RunId(run))
    outcome = record.read_json(folder / "outcome.json") if record.own(folder).get("backend") == record.HOSTS else {}
    verdict, t = outcome.get("verdict"), outcome.get("t")
    known = isinstance(verdict, str) and isinstance(t, (int, float))
    if not hosts and not known:
        return None
    ended = f"{run} ended ({verdict}) {duration(max(0.0, now - (t or 0.0)))} ago" if known else f"{run} has ended"
    if not hosts:
        return DeployError(f"{ended}; these hosts have nothing of it", f"its report: {folders.display_path(folder)}")
    there = f"--hosts {','.join(hosts)} --run {run}"
    return DeployError(
        f"{ended}; no container of it is left, its files are on {', '.join(hosts)}",
        f"its logs: {FAB} logs {there}; its files: {FAB} fetch {there}",
    )
