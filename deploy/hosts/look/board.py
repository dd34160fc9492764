"""The runs of hosts on the board: listed as `muster runs` lists them, and each that goes on followed as by `attach`.

It only looks: it stops, removes and hands out nothing. What it follows comes into this folder's runs, from where the
board shows it. Hosts are asked while somebody looks at the list.
"""

from __future__ import annotations

import threading
import time
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from ...core.errors import DeployError
from ...core.names import RunId
from ...job.again import command_of
from ...job.load import known_cluster, value_of
from ...job.options import Options
from ...report import tables
from ...report.board import server
from ...report.board.runs import MOST_RUNS, Row, row_elsewhere
from ...report.console import Console
from ...report.recorder import Recorder
from ...run.files import folders, locks, record
from ...run.files.ends import UNFINISHED
from ..start import observe
from . import attach, status

# How often hosts are asked for their runs, and for how long after somebody has looked; runs followed at once; patience
# with a follower that ends.
_EVERY_S, _LOOKED_S, _MOST_FOLLOWED, _PATIENCE_S = 30.0, 10.0, 8, 10.0


def serve(options: Options, console: Console) -> int:
    """Serve the board of this folder's runs and of those on hosts until Ctrl-C. Raises UsageError."""
    with HostRuns(options) as runs:
        return server.serve(folders.RUNS, int(value_of(options, "port") or 0), not options.no_open, console, runs)


class HostRuns:
    """What hosts say of their runs. `faults`: of hosts that did not answer, and of runs that cannot be followed."""

    def __init__(self, options: Options) -> None:
        self._cluster, self._options = known_cluster(options), options
        self.faults: list[str] = []
        self._values: list[dict[str, Any]] = []
        self.looked_at = time.monotonic()
        self._over = threading.Event()
        self._followed: dict[str, threading.Thread] = {}
        self._unfollowed: dict[str, str] = {}

    def __enter__(self) -> HostRuns:
        self._start(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        until = time.monotonic() + _PATIENCE_S
        for thread in [*self._followed.values()]:
            thread.join(max(0.0, until - time.monotonic()))

    def rows(self) -> list[Row]:
        """A row for each run on the hosts."""
        return [row_elsewhere(value, _fetch(value)) for value in self._values]

    def _watch(self) -> None:
        """Ask the hosts for their runs, as often as is due."""
        asked_at = -_EVERY_S
        while not self._over.wait(0.5):
            now = time.monotonic()
            if now - self.looked_at < _LOOKED_S and now - asked_at > _EVERY_S:
                self._ask()
                asked_at = time.monotonic()
                self._follow_running()

    def _ask(self) -> None:
        try:
            answers = status.ask(self._cluster, observe.runs)
        except (DeployError, OSError) as fault:  # such as too many open files: the next time may have them
            self.faults = [str(fault)]
            return
        by_host = status.by_typed(self._cluster, answers)
        self._values = tables.run_values(by_host)[-MOST_RUNS:]
        self.faults = [
            *(f"{host}: {words}" for host, words in tables.fault_rows(answers.faults)),
            *self._unfollowed.values(),
        ]

    def _follow_running(self) -> None:
        """Follow the newest runs that go on and that no command follows here, last those that could not be."""
        self._followed = {run: thread for run, thread in self._followed.items() if thread.is_alive()}
        newest = reversed(self._values)
        for value in sorted(newest, key=lambda value: value["run"] in self._unfollowed):
            run = value["run"]
            if value["state"] in tables.ENDED or run in self._followed or _is_followed(run):
                continue
            if len(self._followed) >= _MOST_FOLLOWED:
                return
            self._followed[run] = self._start(self._follow, value)

    def _follow(self, value: dict[str, Any]) -> None:
        run = value["run"]
        self._unfollowed.pop(run, None)  # a host that was away may be back
        try:
            attach.attach(
                replace(self._options, hosts=",".join(value["hosts"]), run=run),
                Recorder(lambda event: None, over=self._over.is_set),
                only_looks=True,
            )
            value["state"] = UNFINISHED  # until the hosts are asked again
        except (DeployError, OSError) as fault:
            self._unfollowed[run] = f"{run}: cannot be followed: {fault}"

    def _start(self, work: Any, *given: object) -> threading.Thread:
        """A thread that asks whom this command asks (job/consent.py)."""
        thread = threading.Thread(
            target=copy_context().run, args=(work, *given), daemon=True, name="muster-board-hosts"
        )
        thread.start()
        return thread


def _is_followed(run: RunId) -> bool:
    """Whether a command on this machine follows the run already."""
    run_dir = record.path_of(run)
    if not run_dir.is_dir():
        return False
    if lock := locks.hold_followed(run_dir):
        lock.release()
    return lock is None


def _fetch(value: dict[str, Any]) -> str:
    return f"{command_of('fetch', hosts=','.join(value['hosts']))} {value['run']}"
