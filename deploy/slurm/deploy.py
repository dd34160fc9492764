"""The steps of `muster deploy --slurm`: look at the login node, send the folder, submit the job, follow it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..core.errors import DeployError, UsageError
from ..core.names import RunId
from ..core.text import amount, several
from ..host import jobs
from ..job.inventory import hosts_of_flag
from ..job.load import read_run
from ..job.script import PER_NODE
from ..report.console import Console
from ..report.interrupts import Interrupts
from ..report.script_lines import shown_ranks
from ..run.files import record
from ..run.start import Start, start_run
from ..send.folder import folder_look, repository
from . import follow, job_end, plan, recorded_run
from .backend import SlurmBackend
from .login import Login
from .plan import JobRequest
from .recorded_run import RecordedRun

_LOOK_S = 0.5


def deploy(order: JobRequest, console: Console, resumed: RecordedRun | None = None) -> int:
    """Submit a job and follow it; return the exit code. Raises DeployError.

    `resumed`: the run that this job continues.
    """
    with Interrupts(console, "connecting", "nothing was submitted") as interrupts:
        return start_run(_OnSlurm(order, console, interrupts, resumed), interrupts.hold)


class _OnSlurm(Start[SlurmBackend]):
    """A run that is a job of Slurm."""

    def __init__(
        self, order: JobRequest, console: Console, interrupts: Interrupts, continues: RecordedRun | None
    ) -> None:
        options = order.options
        self._order, self._continues, self._console, self._interrupts = order, continues, console, interrupts
        self._name, self._ranks, self._files = read_run(options.run), shown_ranks(options.rank), _files(order)
        self.dry_run, self.detach, self.resumed = options.dry_run, options.detach, continues is not None
        hosts = hosts_of_flag(options.slurm)
        if len(hosts) != 1:
            raise UsageError(f"--slurm {options.slurm}: give only one login node", "--slurm user@login.cluster:port")
        (self._host,) = hosts

    @contextmanager
    def reach(self) -> Iterator[None]:
        """Check that the host is a login node of Slurm, and that this run may start there."""
        options, continues = self._order.options, self._continues
        with Login(self._host) as login:
            self._interrupts.at("looking at the cluster")
            seen = login.look(options.shared, "" if continues else self._name)
            if seen.lacks:
                lacks = ", ".join(seen.lacks)
                raise DeployError(f"{options.slurm}: it has no {lacks}", "--slurm takes a login node of Slurm")
            if seen.wrong:
                hint = f"a folder that exists on {options.slurm}"
                raise UsageError(f"--shared {options.shared}: {seen.wrong}", hint)
            taken = self._name and record.path_of(RunId(self._name)).exists()
            if not continues and (seen.taken or taken):
                raise UsageError(f"--run {self._name}: a run of this name exists already", "choose another name")
            login.shared, self._login = seen.shared, login
            self._console.note(f"{options.slurm}: {seen.version}; runs are in {seen.shared}/.muster/runs")
            if continues:
                self._order = replace(self._order, after=_ended(continues, login, self._console))
            yield

    def show_plan(self) -> None:
        """Print the steps on the login node, and the batch script."""
        asked, shared = self._order, self._login.shared
        run = self._continues.run if self._continues else RunId(self._name or "RUN")
        self._console.text("\n".join(plan.shown(asked, run, shared, self._files)))
        folder = plan.folder_of(shared, run)
        self._console.data({"kind": "plan", "login": asked.options.slurm, "folder": folder})

    def choose_folder(self) -> Path:
        """Return the run's folder on this machine.

        The name of a new one has a random part, so that no other machine chooses the same name for a run.
        """
        if self._continues:
            return self._continues.run_dir
        order = self._order
        words = [word for word in order.words if not (order.script and word == PER_NODE)]
        return record.new_folder(self._name, words, order.script, (), secrets.token_hex(2))

    @contextmanager
    def open_backend(self, run_dir: Path) -> Iterator[SlurmBackend]:
        """Yield the backend of the job, with a progress view of what is sent for it."""
        console, host, ranks = self._console, self._host.name, self._ranks.numbers
        with console.transferring([host]) as tell:
            yield SlurmBackend(self._login, run_dir, "", console.warn, ranks, self._order, partial(tell, host))

    def record_start(self, backend: SlurmBackend) -> dict[str, bytes]:
        """Write this start into the run's folder, before its job is submitted."""
        order = self._order
        self.code = repository.look(order.folder, order.choice) if order.folder else None
        earlier = recorded_run.open_start(backend.run_dir, order, self._host, self._login.shared)
        self._interrupts.at("sending the folder and submitting the job")
        return earlier

    def tell_started(self, backend: SlurmBackend) -> None:
        """Record the job's number and print it."""
        recorded_run.update_record(backend.run_dir, job=backend.number)
        console, run, slurm = self._console, backend.run, self._order.options.slurm
        console.note(f"{run} is job {backend.number} on {slurm} ({self._files})")
        console.data({"kind": "submitted", "run": run, "job": backend.number, "login": slurm})
        if self.detach:
            backend.close()
            console.note(f"follow it: muster attach --run {run}")
            console.line(run)

    def follow(self, backend: SlurmBackend) -> int:
        """Follow the job to its end."""
        order = self._order
        view = (self._console, self._interrupts, self._ranks)
        return follow.Following(backend, order.script, order.words, *view).until_done()


def _ended(resumed: RecordedRun, login: Login, console: Console) -> str:
    """Return the last job of the run, which has ended. Raises DeployError if not: two starts would ruin one folder."""
    number, began = recorded_run.number_of(resumed, login, console), time.monotonic()
    while True:
        job = login.job(resumed.run, number)
        if job.state == jobs.NO_FOLDER:
            raise DeployError(
                f"--resume {resumed.run}: its folder no longer exists on {login.host.name}",
                "muster deploy starts a new run",
            )
        if job.state == jobs.AWAY:
            raise DeployError(
                f"--resume {resumed.run}: could not tell whether job {number} has ended: Slurm does not answer",
                "try again in a minute",
            )
        if job.state not in jobs.ENDED:
            raise DeployError(
                f"--resume {resumed.run}: job {number} has not ended ({job.state})",
                f"follow it: muster attach --run {resumed.run}",
            )
        if job_end.is_over(job, time.monotonic() - began):
            return number
        time.sleep(_LOOK_S)


def _files(order: JobRequest) -> str:
    if order.folder is None:
        return "no folder is sent"
    entries = folder_look.look_at(order.folder, order.choice).entries
    size = sum(entry.size for entry in entries)
    return f"{several(sum(not entry.isdir() for entry in entries), 'file')}, {amount(size)}"
