"""Start, undo, signal and remove the nodes of a run on all hosts. These functions decide nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ..causes import docker_faults
from ..core import fields
from ..core.errors import BadAnswer, DeployError
from ..core.fields import default, digits, text
from ..core.results import Results
from ..door.session import Session, on_all
from ..engine import reach
from ..host import audit, commands
from . import observe
from .container import NodeContainer

_START_S = 180.0
_END_S = 90.0
_LEFT = fields.row(text(1000), text(1000))


class Removed(NamedTuple):
    """How many of our containers were removed, and other users' runs that were left, each with its user."""

    containers: int
    left: tuple[tuple[str, str], ...]


def start(sessions: Sequence[Session], containers: Sequence[NodeContainer]) -> None:
    """Start the first host's node, then all others at once. Before that, clear what an earlier start of the run left.

    Raises HostsFailed with every host that failed; `undo` then removes what was started, even a start still at work.
    """
    by_host = {container.host: container for container in containers}
    if not containers[0].fresh:
        on_all(sessions, lambda session: session.run(commands.script("clear", containers[0].run))).all()
    first = [session for session in sessions if session.host.name == containers[0].host]
    others = [session for session in sessions if session.host.name != containers[0].host]
    for group in (first, others):
        on_all(group, lambda session: _start_one(session, by_host[session.host.name])).all()
    witnessed = [session for session in sessions if by_host[session.host.name].witness]
    on_all(witnessed, lambda session: _start_one(session, by_host[session.host.name].witness)).all()


def undo(sessions: Sequence[Session], containers: Sequence[NodeContainer]) -> Results[str]:
    """Remove what a failed start has made, and nothing else. A run folder that existed before stays."""
    by_host = {undo_one.host: undo_one for undo_one in containers}

    def undo_one(session: Session) -> str:
        container = by_host[session.host.name]
        return session.run(
            commands.script("undo", container.start, container.folder, "fresh" * container.fresh), timeout_s=_END_S
        ).out

    return on_all(sessions, undo_one)


def signal(sessions: Sequence[Session], run: str, name: str) -> Results[None]:
    """Send a signal to every node of a run (SIGINT asks it to stop). Does not wait for an effect."""

    def signal_one(session: Session) -> None:
        for each in observe.containers_of(session, run):
            if each.ours and each.status == "running":
                reach.on_host(session).signal(each.id, name)
        audit.note(session, f"{run} {name}")

    return on_all(sessions, signal_one)


def remove(sessions: Sequence[Session], run: str = "") -> Results[Removed]:
    """Remove our containers of a run, or of all runs, running or not."""

    def remove_one(session: Session) -> Removed:
        removed = removed_of(session.run(commands.script("remove", run), timeout_s=_END_S).out)
        if removed.containers:
            audit.note(session, f"{run or 'all runs'}: removed {removed.containers}")
        return removed

    return on_all(sessions, remove_one)


def having(sessions: Sequence[Session], run: str, paths: Sequence[str]) -> dict[str, frozenset[str]]:
    """By host: which of these paths its folder of the run has. A host that does not answer is left out."""

    def look(session: Session) -> frozenset[str]:
        places = {f"{session.home}/runs/{run}/{path}": path for path in paths}
        missing = frozenset(session.run(commands.script("missing", *places)).out.split("\n"))
        return frozenset(path for place, path in places.items() if place not in missing)

    return on_all(sessions, look).values if paths else {}


def _start_one(session: Session, container: NodeContainer | None) -> None:
    if container is None:
        return
    new = container.fresh and container.first
    command = commands.start(
        container.folder,
        container.owner,
        container.argv,
        container.start,
        new,
        container.keep,
        container.claim,
        container.own,
    )
    done = session.run(command, input=container.input, timeout_s=_START_S, check=False)
    if done.code:
        lines = (done.err.strip() or "no output").splitlines()
        # Our own error comes first, then Docker's, whose last line may only be "See 'docker run --help'."
        errors = [line for line in lines if line.startswith("error: ")]
        cause = next((line for line in (*errors, *lines) if "rror" in line or "denied" in line), lines[-1])
        text = f"{session.host.name}: {container.node} was not started: {cause}"
        raise DeployError(text, docker_faults.hint(done.err, session.host.name))
    audit.note(session, f"{container.run} started {container.name}")


def removed_of(answer: str) -> Removed:
    """Read the answer to `host_commands.remove`. Raises BadAnswer, but not for odd labels of other users' ones."""
    rows, left = fields.rows(answer), set[tuple[str, str]]()
    count = default(digits(0, 1 << 20), 0)(rows.get("removed", [""])[0], "how many containers were removed")
    for value in rows.get("left", ()):
        with suppress(BadAnswer):
            run, user = _LEFT(fields.document(value, "a container"), "a container")
            left.add((run, user or "another user"))
    return Removed(count, tuple(sorted(left)))
