"""The sequence of steps for a run that a command starts, on any backend: load, look, plan, launch, follow, end.

Each backend supplies the steps that differ, as a Start. --dry-run prints the plan that would be launched: both come
from the same look at the machines. Until the nodes run, any failure and any Ctrl-C undoes everything; after that
follow.py follows the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from ..core.errors import DONE
from . import environment
from .backend import Backend
from .files import code, locks, record
from .files.code import Code

B = TypeVar("B", bound=Backend)


class Start(ABC, Generic[B]):
    """The steps that a backend supplies for a run that a command starts, in the order in which they are called.

    `resumed`: the run's folder holds earlier starts. `code`: the commit of the script's folder, once `reach` knows it.
    With `dry_run` the plan is only shown. With `detach` the command does not follow the run.
    """

    dry_run = detach = resumed = False
    code: Code | None = None

    @abstractmethod
    def reach(self) -> AbstractContextManager[object]:
        """Load the user's options, connect, look, and plan, without changes. Connections stay open until the end."""

    def show_plan(self) -> None:
        """Print the plan. Never called for a backend whose command has no --dry-run."""
        raise NotImplementedError

    @abstractmethod
    def choose_folder(self) -> Path:
        """The run's folder on this machine: a new one, or the folder of the run that is resumed."""

    @abstractmethod
    def open_backend(self, run_dir: Path) -> AbstractContextManager[B]:
        """Open the backend that runs the plan, and whatever must be held (such as locks) until its nodes run."""

    @abstractmethod
    def record_start(self, backend: B) -> dict[str, bytes]:
        """Write this start into the run's folder. Returns the files that record.undo_start needs."""

    @abstractmethod
    def tell_started(self, backend: B) -> None:
        """Tell the user that the run has started, and where."""

    @abstractmethod
    def follow(self, backend: B) -> int:
        """Follow the run to its end, and show how it ended. Returns its exit code."""


def start_run(start: Start[B], hold: Callable[[], None]) -> int:
    """Start a run and follow it; returns the exit code. A start that fails is undone before DeployError is raised.

    It calls `hold` at the point from which nothing may be interrupted.
    """
    with start.reach():
        if start.dry_run:
            start.show_plan()
            return DONE
        run_dir = start.choose_folder()
        # Commands that look while the nodes start learn from the lock that the run is starting.
        with locks.followed(run_dir), start.open_backend(run_dir) as backend:
            launch(backend, run_dir, start.resumed, partial(start.record_start, backend), hold)
        code.write(run_dir, start.code)
        start.tell_started(backend)
        return DONE if start.detach else start.follow(backend)


def launch(
    backend: Backend,
    run_dir: Path,
    resumed: bool,
    open_record: Callable[[], dict[str, bytes]],
    hold: Callable[[], None],
) -> dict[str, bytes]:
    """Start every node of a run, or undo everything and raise the failure or the interruption.

    `open_record` writes this start into the run folder and returns the files that record.undo_start needs; this
    function returns them, too. It calls `hold` at the point from which nothing may be interrupted. `resumed`: the run
    folder holds earlier starts, so it stays.
    """
    before, undone = dict[str, bytes](), True
    try:
        with backend.lock():
            backend.check()
            before = open_record()
            backend.prepare()
            try:
                backend.start()
                hold()
            except BaseException:
                hold()
                undone = False
                backend.undo()
                undone = True
                raise
    except BaseException:
        hold()
        # Without a record there is no start to undo. If nodes may be left, the folder stays, so that the user finds
        # them.
        if undone and (before or not resumed):
            with suppress(OSError):
                record.undo_start(run_dir, before)
        raise
    return before


def asked_ends(grace_s: float | None, restart_with: str | None) -> dict[str, str]:
    """The variables that tell a node how its script ends and starts again, if the user asked for that."""
    given = {environment.GRACE: f"{grace_s:g}" if grace_s else "", environment.RESTART_WITH: restart_with or ""}
    return {name: value for name, value in given.items() if value}
