"""The backend for Slurm: a run is one job with one batch script, submitted through a login node.

The run continues without this process.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from ..core import plain_file
from ..core.errors import BadAnswer, DeployError
from ..core.facts import NodeState
from ..core.names import RunId
from ..core.printable import console_line
from ..core.text import several
from ..host import jobs
from ..host.commands import file_lines, script
from ..host.jobs import Job
from ..run.backend import Backend
from ..run.events import Event
from ..run.output import RankLogs
from ..run.progress import State
from ..run.sbatch import batch_script
from ..send.folder import folder_look
from ..send.folder.content import TIME, unreadable
from ..send.folder.folder_stream import FolderStream
from . import plan
from .login import ASK_S, Login, Unknown
from .mirror import JobCopy

EVERY_S, AGAIN_S = 0.5, 2.0
_MOST_KEPT = 10


class SlurmBackend(Backend):
    """A run's job. Every command that follows a job uses this class; only the command that submits it gives `order`.

    `number`: the job's id, once it is known. `say` prints a warning. `tell` receives the bytes sent and their total.
    """

    def __init__(
        self,
        login: Login,
        run_dir: Path,
        number: str,
        say: Callable[[str], None],
        ranks: Collection[int] | None = (0,),
        order: plan.JobRequest | None = None,
        tell: Callable[[int, int], None] = lambda sent, total: None,
    ) -> None:
        self.login, self.run_dir, self.number, self._order = login, run_dir, number, order
        self._say, self._ranks, self._tell = say, ranks, tell
        self._closed, self._reported = threading.Event(), set[str]()

    @property
    def run(self) -> RunId:
        """The run's id."""
        return RunId(self.run_dir.name)

    def prepare(self) -> None:
        """Send the folder and the batch script to the cluster; on an error, leave nothing there. Raises DeployError."""
        try:
            self._bring()
        except BaseException:
            with suppress(DeployError):  # the first error tells more
                self.undo("folder")
            raise

    def start(self) -> None:
        """Submit the job, once. Raises DeployError."""
        folder = plan.folder_of(self.login.shared, self.run)
        self.number = self.login.submit(folder, self.run, self._say, self._after)

    def undo(self, made: str = "job") -> None:
        """Cancel the job, if there is one, and remove a new run's folder. Raises DeployError if that is not certain.

        `made`: how far this start had got: it had made its `folder`, or submitted its `job`.
        """
        comes_back = f"muster attach --run {self.run} finds out, and muster stop --run {self.run} ends the job"
        try:
            if not self.login.session.is_open:
                self.login.connect()
            undo = script("undo-job", self.login.shared, self.run, self._after, made)
            answer = self.login.session.run(undo, timeout_s=ASK_S, check=False).out
        except DeployError as fault:
            raise DeployError(f"{fault.message}; the job may have been submitted", comes_back) from fault
        if answer.strip() != "undone":
            raise DeployError(str(Unknown(self.login.host.name, "Slurm does not say")), comes_back)

    @property
    def job(self) -> Job | None:
        """What Slurm last reported about the job; None before its first report."""
        return self._watched.job

    @property
    def state_age_s(self) -> float:
        """How many seconds the job has been seen in its present state."""
        copied = self._watched
        return copied.heard - copied.since

    @property
    def unseen_s(self) -> float:
        """Seconds since the last message from the login node."""
        return time.monotonic() - self._watched.heard

    def states(self, state: State) -> list[NodeState]:
        """Return the state of each node, which is that of the job: Slurm reports no other."""
        job = self.job
        if job is None or job.state in jobs.WAITS:
            return []
        code = None if job.state not in jobs.ENDED else 0 if job.state == "COMPLETED" else job.code or 1
        return [NodeState(name, "running" if code is None else "exited", code) for name in state.names]

    def output(self, state: State) -> list[Event]:
        """Return the new lines of the ranks that are shown."""
        return self._logs.take(state.ranks.began)

    def stop(self) -> None:
        """Ask the ranks to stop with a checkpoint, and Slurm not to requeue the job."""
        self._ask(now=False)

    def kill(self) -> None:
        """Cancel the job immediately."""
        self._ask(now=True)

    def clean(self) -> None:
        """Do nothing: a job that has ended leaves only its folder."""
        return

    def close(self) -> None:
        """Stop following the job. The job itself continues."""
        self._closed.set()

    def _bring(self) -> None:
        assert self._order
        folder, login = plan.folder_of(self.login.shared, self.run), self.login
        text, ours = batch_script(plan.job_of(self._order, login.shared, self.run)), self._order.folder or Path()
        entries = folder_look.look_at(ours, self._order.choice).entries if self._order.folder else []
        # Digests are made before the files are sent: the stream refuses any file that changes from now on.
        sent = {entry.path: [_digest(ours / entry.path), entry.size, TIME] for entry in entries if entry.isreg()}
        stream = FolderStream(ours, entries)
        total = stream.size
        take_in = script("make-job", login.shared, self.run)
        if self._after:
            take_in = script("resume-job", login.shared, self.run, self._after, str(TIME))
        answer = login.session.run(take_in, input=stream.read(lambda sent: self._tell(sent, total)), moving=True).out
        if paths := jobs.parse_kept(answer):
            names = ", ".join(console_line(name) for name in paths[:_MOST_KEPT])
            self._say(f"{several(len(paths), 'file')} of {folder}/work stay as the script wrote them: {names}")
        # sent.json lists the files that were sent: all other files were written by the script (contract.md).
        login.session.put(json.dumps(sent).encode(), f"{folder}/sent.json")
        login.session.put(text.encode(), f"{folder}/job.sbatch", 0o700)

    @property
    def _after(self) -> str:
        return self._order.after if self._order else ""

    def _ask(self, now: bool) -> None:
        try:
            self.login.stop(self.run, self.number, now)
        except DeployError as fault:
            self._say(f"the request to stop did not arrive: {fault.message}")

    @cached_property
    def _watched(self) -> JobCopy:
        """The copy of the job's state and files. The first use starts the thread that follows the job."""
        self._logs, copied = RankLogs(self.run_dir), JobCopy(self.run_dir, self.login.host.name, self._say)
        threading.Thread(target=self._follow, args=(copied,), daemon=True, name="muster-job").start()
        return copied

    def _follow(self, copied: JobCopy) -> None:
        while not self._closed.is_set():
            command, known = (
                jobs.follow(self.run, self.number, copied.mark, EVERY_S, self._ranks),
                file_lines(copied.copied_sizes()),
            )
            try:
                self.login.reading_session.run(command, input=known, timeout_s=None, on_line=copied.take, check=False)
            except BadAnswer as fault:
                self._once(f"{self.login.host.name}: {fault.message}")
            except DeployError as fault:
                if not self._closed.is_set():
                    self._say(f"{fault.brief}: the job continues; reconnecting")
                    self._reconnect()
            self._closed.wait(AGAIN_S)

    def _reconnect(self) -> None:
        while not self._closed.is_set():
            try:
                self.login.connect()
            except (DeployError, OSError) as fault:  # OSError: for instance, this machine's disk is full
                self._once(str(fault))
                self._closed.wait(AGAIN_S)
            else:
                self._reported.clear()
                self._say(f"{self.login.host.name}: connected again")
                return

    def _once(self, words: str) -> None:
        if words not in self._reported:
            self._reported.add(words)
            self._say(words)


def _digest(path: Path) -> str:
    """Return the SHA-256 digest of a file's content. Raises DeployError."""
    try:
        with os.fdopen(plain_file.open_plain(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as fault:
        raise unreadable(path, fault) from fault
