"""Perform a plan on real hosts: start in order, undo on failure, signal, clean. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..core import docker_faults, fields
from ..core.errors import NOBODY_WAITS, TAKEN, BadAnswer, DeployError
from ..core.fields import default, digits, text
from ..core.results import Results
from ..host import audit, commands
from ..ssh.session import Session, on_all
from .container import HostSpec, container_name, handed_in

_START_S = 180.0
_END_S = 90.0
_LEFT = fields.row(text(1000), text(1000))


class Removed(NamedTuple):
    """How many containers of ours were removed; the runs of other users that were left, each with its user."""

    containers: int
    left: tuple[tuple[str, str], ...]


def start(sessions: Sequence[Session], specs: Sequence[HostSpec]) -> None:
    """Start the first host's node, then all others at once; before that clear what an earlier start of the run left.

    Raises HostsFailed with every host that failed: `undo` then takes back what was started, also what still is.
    """
    wanted = {one.host: one for one in specs}
    if not specs[0].fresh:
        on_all(sessions, lambda session: session.run(commands.clear(run_of(specs[0])))).all()
    first = [session for session in sessions if session.host.name == specs[0].host]
    others = [session for session in sessions if session.host.name != specs[0].host]
    for group in (first, others):
        on_all(group, lambda session: _start_one(session, wanted[session.host.name])).all()


def undo(sessions: Sequence[Session], specs: Sequence[HostSpec]) -> Results[str]:
    """Take away what a start that failed has made, and nothing else: the run folder too unless it was there before."""
    wanted = {one.host: one for one in specs}

    def one(session: Session) -> str:
        spec = wanted[session.host.name]
        return session.run(commands.undo(spec.start, spec.folder, spec.fresh), timeout_s=_END_S).out

    return on_all(sessions, one)


def signal(sessions: Sequence[Session], run: str, name: str) -> Results[None]:
    """Send every node of a run a signal (SIGINT asks it to stop); returns at once."""

    def one(session: Session) -> None:
        session.run(commands.signal(name, run))
        audit.note(session, f"{run} {name}")

    return on_all(sessions, one)


def remove(sessions: Sequence[Session], run: str = "") -> Results[Removed]:
    """Remove our containers of a run, or of all runs, running or not."""

    def one(session: Session) -> Removed:
        removed = removed_of(session.run(commands.remove(run), timeout_s=_END_S).out)
        if removed.containers:
            audit.note(session, f"{run or 'all runs'}: removed {removed.containers}")
        return removed

    return on_all(sessions, one)


def hand_in(session: Session, run: str, secrets: Mapping[str, str]) -> bool:
    """Hand secrets to a run's node that waits for them, without any: ask whether it does. Whether it waited.

    Raises DeployError where it waits and did not take them.
    """
    command, said = commands.hand_in(container_name(run)), handed_in(secrets)
    done = session.run(command, input=commands.line(said), check=False)
    if said and done.code not in (TAKEN, NOBODY_WAITS):
        words = (done.err.strip() or "others than these").splitlines()[-1]
        raise DeployError(f"{session.host.name}: its node waits for its secrets, and did not take these: {words}")
    return done.code != NOBODY_WAITS


def _start_one(session: Session, spec: HostSpec) -> None:
    new = spec.fresh and spec.first
    command = commands.start(spec.folder, spec.owner, spec.argv, spec.start, new)
    done = session.run(command, input=spec.input, timeout_s=_START_S, check=False)
    if done.code:
        said = (done.err.strip() or "it said nothing").splitlines()
        # Our own word, else Docker's; its last line may only be "See 'docker run --help'."
        own = [line for line in said if line.startswith("error: ")]
        cause = next((line for line in (*own, *said) if "rror" in line or "denied" in line), said[-1])
        raise DeployError(
            f"{session.host.name}: {spec.node} was not started: {cause}", docker_faults.fault(done.err).hint
        )
    audit.note(session, f"{run_of(spec)} started {spec.container}")


def removed_of(said: str) -> Removed:
    """Read the answer to `host_commands.remove`. Raises BadAnswer; others may label their containers as they like."""
    rows, left = fields.rows(said), set[tuple[str, str]]()
    count = default(digits(0, 1 << 20), 0)(rows.get("removed", [""])[0], "how many containers were removed")
    for value in rows.get("left", ()):
        with suppress(BadAnswer):
            run, user = _LEFT(fields.document(value, "a container"), "a container")
            left.add((run, user or "another user"))
    return Removed(count, tuple(sorted(left)))


def run_of(spec: HostSpec) -> str:
    """The id of the run that a host's container belongs to."""
    return spec.container.removeprefix("muster-")
