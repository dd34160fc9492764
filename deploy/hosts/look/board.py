"""Runs on hosts for the board: listed as `muster runs` lists them; running ones are followed as `attach` does.

It only looks: it stops and removes nothing, and hands over no secrets. What it copies goes into this folder's runs, and
the board shows it from there. Hosts are asked only while somebody looks at the list.
"""

from __future__ import annotations

import threading
import time
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from ...core.errors import DeployError
from ...core.names import RunId
from ...job.load import known_cluster, value_of
from ...job.option_words import command_of
from ...job.options import Options
from ...report import tables
from ...report.board import server
from ...report.board.answers import Board
from ...report.board.runs import MOST_RUNS, Live, Row, row_elsewhere
from ...report.console import Console
from ...report.recorder import Recorder
from ...run.files import folders, locks, record
from ...run.files.standing import UNFINISHED
from ..start import observe
from . import attach, status

# Seconds between two questions to the hosts; for how many seconds after a look the board keeps asking; the most runs
# followed at the same time; how many seconds to wait for a follower to end.
_EVERY_S, _LOOKED_S, _MOST_FOLLOWED, _PATIENCE_S = 30.0, 10.0, 8, 10.0


def serve(options: Options, live: Live, console: Console) -> int:
    """Serve the board of this folder's runs and of the runs on hosts until Ctrl-C. Raises UsageError."""
    with HostRuns(options) as runs:
        board = Board(folders.RUNS, runs, live)
        return server.serve(board, int(value_of(options, "port") or 0), not options.no_open, console)


class HostRuns:
    """What hosts report about their runs. `faults`: hosts that did not answer, and runs that cannot be followed."""

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
        """Ask the hosts for their runs whenever that is due."""
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
        except (DeployError, OSError) as fault:  # for example, too many open files; the next try may succeed
            self.faults = [str(fault)]
            return
        by_host = status.by_typed(self._cluster, answers)
        self._values = tables.run_values(by_host)[-MOST_RUNS:]
        self.faults = [
            *(f"{host}: {words}" for host, words in tables.fault_rows(answers.faults)),
            *self._unfollowed.values(),
        ]

    def _follow_running(self) -> None:
        """Follow the newest running runs that no local command follows; those that could not be followed come last."""
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
        self._unfollowed.pop(run, None)  # a host that did not answer may be back
        try:
            attach.attach(
                replace(self._options, hosts=",".join(value["hosts"]), run=run),
                Recorder(lambda event: None, over=self._over.is_set),
                only_looks=True,
            )
            value["state"] = UNFINISHED  # until the next answer from the hosts
        except (DeployError, OSError) as fault:
            self._unfollowed[run] = f"{run}: cannot be followed: {fault}"

    def _start(self, work: Any, *given: object) -> threading.Thread:
        """Start a thread in a copy of this context, so that it asks the same user for consent (job/consent.py)."""
        thread = threading.Thread(
            target=copy_context().run, args=(work, *given), daemon=True, name="muster-board-hosts"
        )
        thread.start()
        return thread


def _is_followed(run: RunId) -> bool:
    """Whether a command on this machine already follows the run."""
    lock = record.path_of(run) / ".lock"
    return lock.is_symlink() or locks.is_held(lock)  # a follower here could not take a link


def _fetch(value: dict[str, Any]) -> str:
    return f"{command_of('fetch', hosts=','.join(value['hosts']))} {value['run']}"
