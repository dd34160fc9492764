"""One `fab deploy --slurm`, whole: look at the login node, send, submit, follow."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..core.errors import DONE, DeployError, UsageError
from ..core.names import RunId
from ..core.program import FAB
from ..core.text import amount, several
from ..host import jobs
from ..image import code_layer, repository
from ..job.inventory import hosts_of_flag
from ..job.load import read_run
from ..report.console import Console
from ..report.interrupts import Interrupts
from ..report.script_lines import shown_ranks
from ..run import code, environment, folders, record
from ..run.launch import launch
from . import ends, follow, known, plan
from .backend import Order, SlurmBackend
from .known import Known
from .login import Login

_LOOK_S = 0.5


def deploy(order: Order, words: Sequence[str], script: bool, console: Console, resumed: Known | None = None) -> int:
    """Submit a job and follow it; returns the exit code. Raises DeployError.

    `resumed`: the run that goes on with this job.
    """
    asked, options = order.asked, order.asked.options
    name, ranks = read_run(options.run), shown_ranks(options.rank)
    hosts = hosts_of_flag(options.slurm)
    if len(hosts) != 1:
        raise UsageError(f"--slurm {options.slurm}: one login node", "--slurm user@login.cluster:port")
    files = _files(order)
    with Interrupts(console, "connecting", "nothing was submitted") as interrupts, Login(hosts[0]) as login:
        interrupts.at("looking at the cluster")
        seen = login.look(options.shared, "" if resumed else name)
        if seen.lacks:
            raise DeployError(
                f"{options.slurm}: it has no {', '.join(seen.lacks)}", "--slurm names a login node of Slurm"
            )
        if seen.wrong:
            raise UsageError(f"--shared {options.shared}: {seen.wrong}", f"a folder that exists on {options.slurm}")
        if not resumed and (seen.taken or (name and record.path_of(RunId(name)).exists())):
            raise UsageError(f"--run {name}: a run of this name exists already", "choose another name")
        login.shared = seen.shared
        console.note(f"{options.slurm}: {seen.version}; runs lie in {seen.shared}/.muster/runs")
        if resumed:
            order = replace(order, after=_ended(resumed, login, console))
        if options.dry_run:
            run = resumed.run if resumed else RunId(name or "RUN")
            console.text("\n".join(plan.shown(asked, run, seen.shared, files)))
            console.data({"kind": "plan", "login": options.slurm, "folder": plan.folder_of(seen.shared, run)})
            return DONE
        run_dir = resumed.run_dir if resumed else _run_folder(name, words, script)
        with console.pushing([hosts[0].name]) as tell:
            backend = SlurmBackend(
                login, run_dir, "", console.warn, None if ranks.numbers is None else sorted(ranks.numbers), order,
                lambda sent, total: tell(hosts[0].name, sent, total),
            )  # fmt: skip

            def open_record() -> dict[str, bytes]:
                again, folder = asked.again, order.folder
                earlier = known.open_start(run_dir, tuple(words), script, hosts[0], seen.shared, again, folder)
                interrupts.at("sending the folder and submitting the job")
                return earlier

            launch(backend, run_dir, bool(resumed), open_record, interrupts.hold)
        known.note(run_dir, job=backend.number)
        if order.folder:
            code.write(run_dir, repository.look(order.folder, order.choice))
        run = RunId(run_dir.name)
        console.note(f"{run} is job {backend.number} on {options.slurm} ({files})")
        console.data({"kind": "submitted", "run": run, "job": backend.number, "login": options.slurm})
        if options.detach:
            backend.close()
            console.note(f"follow it: {FAB} attach --run {run}")
            console.line(run)
            return DONE
        return follow.until_done(backend, script, words, console, interrupts, ranks)


def _ended(resumed: Known, login: Login, console: Console) -> str:
    """The last job of the run, which has ended. Raises DeployError if it has not: two starts would ruin one folder."""
    number, began = known.number_of(resumed, login, console), time.monotonic()
    while True:
        job = login.state(resumed.run, number)[1]
        if job is None or job.state == jobs.NO_FOLDER:
            raise DeployError(
                f"--resume {resumed.run}: its folder is gone from {login.host.name}", f"{FAB} deploy starts a new run"
            )
        if job.state == jobs.AWAY:
            raise DeployError(
                f"--resume {resumed.run}: could not tell whether job {number} has ended: Slurm does not answer",
                "try again in a minute",
            )
        if job.state not in jobs.ENDED:
            raise DeployError(
                f"--resume {resumed.run}: job {number} has not ended ({job.state})",
                f"follow it: {FAB} attach --run {resumed.run}",
            )
        if ends.is_over(job, time.monotonic() - began):
            return number
        time.sleep(_LOOK_S)


def _files(order: Order) -> str:
    if order.folder is None:
        return "no folder is sent"
    entries = code_layer.entries(order.folder, order.choice)
    size = sum(entry.size for entry in entries)
    return f"{several(sum(not entry.isdir() for entry in entries), 'file')}, {amount(size)}"


def _run_folder(name: str, words: Sequence[str], script: bool) -> Path:
    if name:
        folder = record.path_of(RunId(name))
        record.make_runs(folder.parent)
        try:
            folder.mkdir(record.OWNERS)
        except FileExistsError as fault:
            raise UsageError(f"--run {name}: another command has just taken that name", "choose another") from fault
        return folder
    named = ("--recipe", environment.script_name([word for word in words if word != "--per-node"])) if script else words
    return record.make_folder(folders.RUNS, named, time.time(), (), secrets.token_hex(2))
