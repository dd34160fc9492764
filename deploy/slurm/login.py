"""The connection to a login node: the questions that Muster asks there, and a new connection if one is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from ..core.errors import DeployError
from ..core.names import RunId
from ..door.session import Session, SshFault, open_again
from ..host import jobs
from ..host.commands import script
from ..host.jobs import ClusterLook, Job
from ..job.inventory import Host

# squeue and scontrol retry by themselves while the controller is busy.
ASK_S = 90.0
# The script submit-job waits a minute for an earlier attempt that is still running, and Slurm's commands retry too.
SUBMIT_S = 240.0
_AGAIN_S, _TRIES_S = 2.0, 60.0


class Login:
    """A login node, as a context manager that keeps a connection to it. `shared`: the folder shared with the nodes."""

    def __init__(self, host: Host, shared: str = "") -> None:
        self.host, self.shared = host, shared
        self._stack = ExitStack()
        self._session: Session | None = None

    def __enter__(self) -> Login:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def connect(self) -> None:
        """Close the earlier connection, if any, and open a new one. Raises DeployError."""
        self._session = open_again(self._stack, self.host)

    @property
    def session(self) -> Session:
        """The connection for sbatch, which needs the user's own $HOME."""
        assert self._session, "it is entered"
        return self._session

    @property
    def reading_session(self) -> Session:
        """The connection for commands that use the run folders: their $HOME is the shared folder."""
        own = self.session.home.removesuffix("/.muster")
        return self.session if self.shared in ("", own) else self.session.at_home(self.shared)

    def look(self, shared: str, run: str) -> ClusterLook:
        """Look at the cluster before a deploy. Raises DeployError."""
        return jobs.parse_look(self.session.run(script("look-cluster", shared, run), timeout_s=ASK_S).out)

    def submit(self, folder: str, run: RunId, say: Callable[[str], None], after: str = "") -> str:
        """Submit the run's batch script exactly once, even if the connection breaks; return the job's id.

        `after`: the run's earlier job, which has ended.

        Raises DeployError; Unknown if it is not certain whether Slurm has the job.
        """
        until = time.monotonic() + _TRIES_S
        while True:
            try:
                done = self.session.run(script("submit-job", folder, run, after), timeout_s=SUBMIT_S, check=False)
                word, number = jobs.parse_submitted(done.out)
                break
            except SshFault as fault:
                say(f"{fault.brief}; asking again whether the job was submitted")
                self.reconnect(until, fault)
        if word == "job":
            return number
        words = done.err.strip()[-2000:]
        if word == "refused":
            raise DeployError(
                f"{self.host.name}: sbatch refused the job: {words}", "--sbatch='...' gives sbatch options"
            )
        raise Unknown(self.host.name, words or "another attempt to submit it is still in progress")

    def reconnect(self, until: float, fault: DeployError) -> None:
        """Try to connect again until the time `until` (monotonic clock). Raises Unknown."""
        while True:
            try:
                return self.connect()
            except DeployError:
                if time.monotonic() > until:
                    raise Unknown(self.host.name, fault.message) from fault
                time.sleep(_AGAIN_S)

    def state(self, run: RunId, number: str = "") -> tuple[str, Job | None, str]:
        """Return the job's id, its present state, and its last lines (jobs.parse_state). Raises DeployError."""
        return jobs.parse_state(self.reading_session.run(jobs.state(run, number), timeout_s=ASK_S, check=False).out)

    def job(self, run: RunId, number: str) -> Job:
        """Return the state of a job that was submitted. Raises DeployError."""
        return self.state(run, number)[1] or Job(jobs.AWAY)

    def stop(self, run: RunId, number: str, now: bool) -> None:
        """Ask a job to stop with a checkpoint, or kill it `now`. Raises DeployError."""
        self.reading_session.run(script("stop-job", run, number, "now" if now else "checkpoint"), timeout_s=ASK_S)


class Unknown(DeployError):
    """Raised if it is not certain whether Slurm has the job."""

    def __init__(self, host: str, words: str) -> None:
        super().__init__(f"{host}: could not tell whether the job was submitted: {words}", "")
