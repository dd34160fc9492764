"""Perform a plan on real hosts: start in order, undo on failure, signal, clean. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from deploy import audit, host_commands
from deploy.deploy_spec import HostSpec
from deploy.errors import DeployError
from deploy.results import Results
from deploy.session import Session, on_all

_START_S = 180.0
_END_S = 90.0


def start(sessions: Sequence[Session], specs: Sequence[HostSpec]) -> None:
    """Start the first host's node, then all others at once.

    Raises HostsFailed with every host that failed: `undo` then takes back what was started, also what still is.
    """
    wanted = {one.host: one for one in specs}
    first = [session for session in sessions if session.host.name == specs[0].host]
    others = [session for session in sessions if session.host.name != specs[0].host]
    for group in (first, others):
        on_all(group, lambda session: _start_one(session, wanted[session.host.name])).all()


def undo(sessions: Sequence[Session], specs: Sequence[HostSpec]) -> Results[str]:
    """Take away what a start that failed has made, the run folder too unless an earlier start made it."""
    wanted = {one.host: one for one in specs}

    def one(session: Session) -> str:
        spec = wanted[session.host.name]
        session.run(host_commands.remove(run_of(spec)), timeout_s=_END_S)
        if not spec.fresh:
            return ""
        return session.run(host_commands.remove_folder(spec.folder), timeout_s=_END_S, check=False).out

    return on_all(sessions, one)


def signal(sessions: Sequence[Session], run: str, name: str) -> Results[None]:
    """Send every node of a run a signal (SIGINT asks it to stop); returns at once."""

    def one(session: Session) -> None:
        session.run(host_commands.signal(name, run))
        audit.note(session, f"{run} {name}")

    return on_all(sessions, one)


def remove(sessions: Sequence[Session], run: str = "") -> Results[int]:
    """Remove the containers of a run, or of all, running or not; how many there were on each host."""

    def one(session: Session) -> int:
        count = int(session.run(host_commands.remove(run), timeout_s=_END_S).out.strip() or 0)
        if count:
            audit.note(session, f"{run or 'all runs'}: removed {count}")
        return count

    return on_all(sessions, one)


def _start_one(session: Session, spec: HostSpec) -> None:
    variables = spec.variables
    command = host_commands.start(len(variables), spec.folder, spec.owner, spec.argv)
    done = session.run(command, input=variables, timeout_s=_START_S, check=False)
    if done.code:
        said = (done.err.strip() or "it said nothing").splitlines()
        # Docker's last line may only be "See 'docker run --help'."
        cause = next((line for line in said if "rror" in line or "denied" in line), said[-1])
        raise DeployError(
            f"{session.host.name}: {spec.node} was not started: {cause}", "log in there and try: docker info"
        )
    audit.note(session, f"{run_of(spec)} started {spec.container}")


def run_of(spec: HostSpec) -> str:
    """The id of the run that a host's container belongs to."""
    return spec.container.removeprefix("muster-")
