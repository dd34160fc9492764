"""The commands for an earlier run on Slurm, found by this user's record of it: attach, stop, status, logs, fetch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ..core.errors import DONE, FAILED, DeployError, UsageError
from ..core.printable import console_line, is_redrawn
from ..core.results import all_faults
from ..core.text import in_seconds, last_line
from ..host import commands, jobs, last_words
from ..host.files import gather
from ..job.option_words import command_of, stop_wait_s
from ..job.options import FLAG, Options
from ..report import ending
from ..report.console import Console
from ..report.interrupts import CONTINUES, Interrupts
from ..report.page import run as page
from ..report.script_lines import shown_ranks
from ..run.files import folders, record, recorded_ends
from ..run.progress import State
from ..run.state import times
from . import follow, job_end, words
from .backend import SlurmBackend
from .login import Login
from .recorded_run import RecordedRun, number_of

_LOOK_S = 1.0
# Job states that Muster adds to Slurm's own.
_OWN_STATES = {
    jobs.AWAY: "may still be running: Slurm's controller does not answer",
    jobs.GONE: "has ended, and Slurm has forgotten it",
    jobs.NO_FOLDER: "no longer has a folder",
}


def attach(recorded: RecordedRun, rank: str, console: Console) -> int:
    """Follow the run to its end, or show how it ended; return its exit code."""
    ranks = shown_ranks(rank)
    if recorded_ends.end_of(recorded.run_dir):
        return ending.show_again(recorded.run_dir, console, command_of("fetch", run=recorded.run))
    with (
        Interrupts(console, "looking for the run", CONTINUES) as interrupts,
        Login(recorded.login, recorded.shared) as login,
    ):
        number = number_of(recorded, login, console)
        backend = SlurmBackend(login, recorded.run_dir, number, console.warn, ranks.numbers)
        interrupts.hold()
        return follow.Following(backend, recorded.script, recorded.words, console, interrupts, ranks).until_done()


def stop(recorded: RecordedRun, now: bool, console: Console) -> int:
    """Stop the run with a checkpoint, or kill it `now`; show how it ended. Raises DeployError if its job still runs."""
    with Login(recorded.login, recorded.shared) as login:
        number = number_of(recorded, login, console)
        job = login.job(recorded.run, number)
        if job.state not in jobs.ENDED:
            login.stop(recorded.run, number, now)
        since, patience_s = (began := time.monotonic()), stop_wait_s(record.facts(recorded.run_dir))
        with console.waiting("stop") as say:
            while not job_end.is_over(job, time.monotonic() - since):
                if time.monotonic() > began + patience_s:
                    raise DeployError(
                        f"job {number} is still {job.state} {in_seconds(patience_s)} after the request to stop",
                        f"kill it: {command_of('stop', run=recorded.run, now=True)}",
                    )
                time.sleep(_LOOK_S)
                before, job = job, login.job(recorded.run, number)
                if job.state != before.state:
                    since = time.monotonic()
                say(f"job {number}: {job.state}")
        state = State(tuple(job.hosts), script=recorded.script)
        state.verdicts, output = follow.last_verdicts(login, recorded.run, number)
        result = job_end.end_of(number, job, state, output, stop_asked=True)
        result = follow.with_resume_hint(result, login, recorded.run)
        end = vars(result)
        if not (recorded.run_dir / "outcome.json").exists():
            end = ending.write(recorded.run_dir, result, state, console)
        ending.show_stopped(recorded.run, end, console, job=number)
        return DONE


def status(recorded: RecordedRun, console: Console) -> int:
    """Show the job's state, its nodes and the steps of its ranks."""
    with Login(recorded.login, recorded.shared) as login:
        number = number_of(recorded, login, console)
        job, seen = login.job(recorded.run, number), last_words.of_run(login.reading_session, recorded.run, check=False)
        # Steps of an earlier start do not count: it may have had more ranks.
        since = time.time() - job.ran_s - times.CLOCKS_DIFFER_S if job.state in jobs.LIVES and job.ran_s else 0.0
        steps = (int(event["step"]) for event in seen if event["kind"] == "step" and event["t"] >= since)
        step = min(steps, default=None)
        waits = job.state in jobs.WAITS
        text = words.waiting(number, job) if waits else f"job {number} {_OWN_STATES.get(job.state, job.state.lower())}"
        text += f" on {', '.join(job.hosts[:8])}" if job.hosts and not waits else ""
        text += f", step {step}" if step is not None else ""
        row = {"kind": "status", "run": recorded.run, "job": number, "state": job.state, "step": step}
        console.line(f"{recorded.run}  {text}", {**row, "nodes": list(job.hosts)})
        return DONE


def fetch(recorded: RecordedRun, only: Sequence[str], console: Console) -> Path:
    """Copy the run's folder, or the files that match `only`, from the cluster; return the folder here.

    Raises DeployError.
    """
    with Login(recorded.login, recorded.shared) as login:
        faults = gather.gather([login.reading_session], recorded.run, only, recorded.run_dir, console)
        page.write(recorded.run_dir)
        if (work := recorded.run_dir / "work").is_dir():
            console.note(f"the script's files are in {folders.display_path(work)}")
        all_faults(*faults)
    return recorded.run_dir


def logs(recorded: RecordedRun, options: Options, console: Console) -> int:
    """Print what the job, or one rank of it, has printed so far."""
    rank = options.rank
    if options.follow or options.since or not (rank in ("", "all") or rank.isdecimal()):
        refused = FLAG.follow if options.follow else FLAG.since if options.since else f"{FLAG.rank} {rank}"
        raise UsageError(
            f"{refused}: not for a run on Slurm",
            f"{command_of('attach', run=recorded.run, rank=rank or 'all')} follows it",
        )
    numbers = shown_ranks(rank or "all").numbers
    name = f"logs/rank-{min(numbers)}.log" if numbers else "job.out"
    about = {"rank": min(numbers)} if numbers else {}
    printed = False

    def take(line: str) -> None:
        nonlocal printed
        printed = True
        if console.as_json:
            console.data({**about, "line": line})
        elif not is_redrawn(line):
            console.block([console_line(line)])

    with Login(recorded.login, recorded.shared) as login:
        command = commands.script("job-log", recorded.run, name, options.grep)
        done = login.reading_session.run(command, on_line=take, check=False, moving=True)
    if done.code == FAILED and not printed:
        raise DeployError(f"{recorded.run}: no {name} there yet", command_of("status", run=recorded.run))
    if done.code:
        raise DeployError(f"{recorded.run}: {name} ended with code {done.code}: {last_line(done.err)}")
    if not printed:
        console.note(f"no line matches {options.grep}" if options.grep else "nothing was printed")
    return DONE
