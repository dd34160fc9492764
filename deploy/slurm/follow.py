"""Follow a job to its end: show its place in the queue, then each of its starts like any run.

A requeue does not end the run: the job waits again, and its next start continues the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..core.errors import DETACHED, DeployError
from ..core.names import NodeName, RunId
from ..core.text import several
from ..host import jobs, last_words
from ..host.jobs import Job
from ..job.option_words import command_of
from ..report import ending
from ..report.console import Console
from ..report.interrupts import Detached, Interrupts
from ..report.script_lines import ShownRanks
from ..run import environment, events, follow
from ..run.files import locks, own_files, record
from ..run.follower import Follower
from ..run.lost_host import patience_s, refuse_cut_off
from ..run.outcome import Result, concluded
from ..run.progress import State
from ..run.state import times
from . import job_end, plan, recorded_run, words
from .backend import SlurmBackend
from .login import Login

_POLL_S = 0.2
# A shared file system may show a verdict this much later than Slurm shows the job's end.
_VERDICTS_S = 20.0
# How long to wait for a new connection if it is lost when the job ends.
_READ_S = 120.0


def last_verdicts(login: Login, run: RunId, number: str) -> tuple[list[events.Event], str]:
    """Return the verdicts that the last start left on the cluster, and the last lines of the job's output."""
    verdicts = [event for event in last_words.of_run(login.reading_session, run) if event["kind"] == "verdict"]
    return verdicts, login.state(run, number)[2]


def with_resume_hint(result: Result, login: Login, run: str) -> Result:
    """`result` with the command that continues a run which was stopped, or which failed without another hint."""
    if result.verdict != "stopped" and (result.verdict != "failed" or result.hint):
        return result
    again = plan.resume_command(login.host.destination, run)
    return replace(result, hint=f"continue with the files that it wrote: {again}")


class Following:
    """Follows a job: its place in the queue, then each of its starts. `command`: what it runs, a `script` or not."""

    def __init__(
        self, backend: SlurmBackend, script: bool, command: Sequence[str], console: Console, interrupts: Interrupts,
        ranks: ShownRanks,
    ) -> None:  # fmt: skip
        self._backend, self._script, self._ranks = backend, script, ranks
        self._what = environment.what_runs(command, script)
        self._console, self._interrupts = console, interrupts
        clear(backend.run_dir)
        since = times.started(record.facts(backend.run_dir))
        self._follower = Follower(backend.run_dir, from_start=True, since=since)
        self._last_note, self._asked = "", 0

    def until_done(self) -> int:
        """Follow the job to its end, record the outcome on this machine, and show it; return the run's exit code."""
        backend, run = self._backend, self._backend.run_dir.name
        self._interrupts.leave_by_ctrl_c(command_of("attach", run=run), command_of("stop", run=run))
        try:
            with locks.followed(backend.run_dir):
                result, state = self._follow_starts()
        except Detached:
            self._interrupts.tell_way_back()
            return DETACHED
        finally:
            backend.close()
        result = with_resume_hint(result, backend.login, run)
        fetch = command_of("fetch", run=run)
        outcome = ending.write(backend.run_dir, result, state, self._console, fetch=fetch)
        return ending.show(backend.run_dir, outcome, self._console, fetch)

    def _follow_starts(self) -> tuple[Result, State]:
        state = State((), script=self._script)
        while not (job := self._look()) or not job_end.is_over(job, self._backend.state_age_s):
            if job and job.state in jobs.WAITS:
                self._tell(words.waiting(self._backend.number, job), "queue", job)
            elif job and job.hosts and job.state in jobs.LIVES:
                state = self._one_start(job)
            time.sleep(_POLL_S)
        if not state.names and (hosts := job.hosts or self._nodes()):  # the job ended before it was seen running
            state = self._one_start(replace(job, hosts=hosts))
        return concluded(self._end(job, state), state.case.finding), state

    def _one_start(self, job: Job) -> State:
        """Show a start of the job until it ends, or Slurm requeues it."""
        if job.state not in jobs.ENDED:
            self._tell(words.running(self._backend.number, job), "running", job)
        recorded_run.update_record(self._backend.run_dir, nodes=list(job.hosts))
        if job.restarts and job.state in jobs.LIVES:
            self._follower.since = time.time() - job.ran_s - times.CLOCKS_DIFFER_S
        state = State(tuple(job.hosts), script=self._script, since=self._follower.since)
        where = f"job {self._backend.number}, {several(len(job.hosts), 'node')}"
        with self._console.following(state, self._what, where, self._ranks) as tell:
            while True:
                now = self._look()
                assert now
                waits = job_end.is_requeued(job, now)
                over = job_end.is_over(now, self._backend.state_age_s)
                self._show(state, tell)
                if over or waits:
                    break
                time.sleep(_POLL_S)
        if waits:
            self._console.note(words.requeued(self._backend.number, state.ranks.step_words if state.step else ""))
            if now.restarts == 2:
                self._console.warn(words.again(self._backend.run))
            clear(self._backend.run_dir)
        return state

    def _nodes(self) -> tuple[NodeName, ...]:
        """Return the nodes of a job that Slurm has forgotten: each node has left a file with its name."""
        return tuple(NodeName(path.stem) for path in sorted((self._backend.run_dir / "nodes").glob("[!.]*.json")))

    def _show(self, state: State, tell: Callable[[list[events.Event]], None]) -> None:
        new, now = self._follower.read(), time.time()
        # A verdict may be from an earlier start, so verdicts are left out here and read again at the end.
        new = [event for event in new if event["kind"] != "verdict"]
        new += follow.changes(self._backend.states(state), state)
        for event in new:
            state.apply(event, now)
        state.inquire(now)
        tell([*new, *self._backend.output(state)])

    def _end(self, job: Job, state: State) -> Result:
        began, backend = time.monotonic(), self._backend
        output, until = "", began + (_VERDICTS_S if state.nodes.up else 0.0)
        while True:
            try:
                state.verdicts, output = last_verdicts(backend.login, backend.run, backend.number)
            except DeployError as fault:  # the thread that follows the job reopens a lost connection
                if time.monotonic() < began + _READ_S:
                    self._interrupts.requests()
                    time.sleep(1.0)
                    continue
                self._console.warn(f"the verdicts of its ranks could not be read: {fault.message}")
            if state.nodes.remains:  # the nodes share one folder, and each has counted its files: keep one count
                first, none = min(state.nodes.remains), {"files": 0, "bytes": 0}
                state.nodes.remains = {
                    name: state.nodes.remains[first] if name == first else none for name in state.names
                }
            if state.verdicts or time.monotonic() > until:
                return job_end.end_of(backend.number, job, state, output, bool(self._asked))
            time.sleep(1.0)

    def _look(self) -> Job | None:
        """Pass on a request to stop; return the job as Slurm last reported it.

        Raises Detached, or DeployError if the login node stays silent.
        """
        requests = self._interrupts.requests()
        if requests > self._asked:
            self._asked = requests
            (self._backend.kill if requests > 1 else self._backend.stop)()
        again, who = command_of("attach", run=self._backend.run), f"{self._backend.login.host.name} has not"
        refuse_cut_off(who, self._backend.unseen_s, patience_s(), "the job", again)
        job = self._backend.job
        if job and job.state == jobs.AWAY:
            self._tell("Slurm's controller does not answer; asking again", "away", job)
        return job

    def _tell(self, text: str, kind: str, job: Job) -> None:
        if text != self._last_note:
            self._last_note = text
            self._console.note(text)
            about = {"kind": kind, "job": self._backend.number, "state": job.state}
            self._console.data({**about, "nodes": list(job.hosts), "message": text})


def clear(run_dir: Path) -> None:
    """Remove the local files about nodes, outcome and logs of an earlier start: the cluster sends the present ones."""
    for folder in ("nodes", "outcome"):
        own_files.clear(run_dir, folder, ".json")
    own_files.clear(run_dir, "logs")
