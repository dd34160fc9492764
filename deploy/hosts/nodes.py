"""Start, undo, signal and remove the nodes of a run on all hosts. These functions decide nothing."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..causes import docker_faults
from ..causes.docker_faults import DockerFault
from ..core.errors import FAILED, DeployError
from ..core.results import Results, named
from ..door.session import Session, among, on_all
from ..engine import reach
from ..engine.container_command import Ended
from ..engine.engine import Container as Seen
from ..engine.engine import label_of
from ..host import audit, commands, facts
from ..host.reached import as_typed
from ..job.option_words import command_of
from .node.container import NodeContainer, container_name
from .start import observe

_START_S = 180.0
_END_S = 90.0


class Removed(NamedTuple):
    """How many of our containers were removed, and which runs of other users were left, each with its user."""

    containers: int
    left: tuple[tuple[str, str], ...]


def start(sessions: Sequence[Session], containers: Sequence[NodeContainer]) -> None:
    """Start the first host's node, then all others in parallel. First clear what an earlier start of the run left.

    Raises HostsFailed with every host that failed. The caller then calls `undo`, which removes what was started, even
    if a start is still in progress.
    """
    by_host = {container.host: container for container in containers}
    if not containers[0].fresh:
        on_all(sessions, lambda session: session.run(commands.script("clear", containers[0].run))).all()
    first, *others = by_host
    for group in ([first], others):
        on_all(among(sessions, group), lambda session: _start_one(session, by_host[session.name])).all()
    witnesses = {each.host: each.witness for each in containers if each.witness}
    on_all(among(sessions, witnesses), lambda session: _start_one(session, witnesses[session.name])).all()


def undo(sessions: Sequence[Session], containers: Sequence[NodeContainer], say: Callable[[str], None]) -> str:
    """Remove what a failed start has made, and nothing else. A run folder that existed before stays.

    Prints and returns what may be left, with the command that removes it; returns "" if nothing is left.
    """
    by_host = {undo_one.host: undo_one for undo_one in containers}

    def undo_one(session: Session) -> None:
        made = by_host[session.name]
        session.run(commands.script("undo", made.start, made.folder, "fresh" * made.fresh), timeout_s=_END_S)

    faults = on_all(sessions, undo_one).faults
    for host, fault in faults.items():
        say(named(host, fault))
    if not faults:
        return ""
    hosts = as_typed(among(sessions, faults))
    say(
        words := f"something may be left on {hosts}; to remove it: "
        f"{command_of('down', hosts=hosts, run=containers[0].run)}"
    )
    return words


def signal(sessions: Sequence[Session], run: str, name: str) -> Results[None]:
    """Send a signal to every node of a run (SIGINT asks it to stop). Does not wait until the signal takes effect."""

    def signal_one(session: Session) -> None:
        for each in observe.containers_of(session, run):
            if each.ours and each.status == "running":
                reach.on_host(session).signal(each.id, name)
        audit.note(session, audit.Action.SIGNALLED, name, run)

    return on_all(sessions, signal_one)


def remove(sessions: Sequence[Session], run: str = "") -> Results[Removed]:
    """Remove our containers of a run, or of all runs, whether they run or not."""

    def remove_one(session: Session) -> Removed:
        engine, home = reach.on_host(session), posixpath.dirname(session.home)
        # Remove the marks of starts first: a start that is still in progress then undoes itself.
        session.run(commands.script("forget", run), timeout_s=_END_S)
        seen = engine.inspected(label_of(run))
        own = [each for each in seen if facts.is_ours(each, home, run)]
        tokens = sorted({each.labels.get("muster.claim", "") for each in own} - {""})
        # The host's end of the run's overlay network would end without help, but some seconds later.
        ends = [end for token in tokens for end in engine.containers(f"muster.overlay={token}")]
        for each in (*own, *ends):
            engine.remove(each.id)
        if tokens:
            session.run(commands.script("forget", run, *tokens), timeout_s=_END_S)
        if own:
            audit.note(session, audit.Action.REMOVED, str(len(own)), run or "all runs")
        return Removed(len(own), _foreign_runs(each for each in seen if each not in own))

    return on_all(sessions, remove_one)


def _foreign_runs(seen: Iterable[Seen]) -> tuple[tuple[str, str], ...]:
    """Other users' runs, each with its user, from the labels of their containers."""
    labels = [each.labels for each in seen if "muster.node" in each.labels]
    return tuple(sorted({(own.get("muster.run", ""), own.get("muster.user", "") or "another user") for own in labels}))


def existing_paths(sessions: Sequence[Session], run: str, paths: Sequence[str]) -> dict[str, frozenset[str]]:
    """Which of these paths each host has in its folder of the run. A host that does not answer is left out."""

    def look(session: Session) -> frozenset[str]:
        places = {f"{session.home}/runs/{run}/{path}": path for path in paths}
        missing = frozenset(session.run(commands.script("missing", *places)).out.split("\n"))
        return frozenset(path for place, path in places.items() if place not in missing)

    return on_all(sessions, look).values if paths else {}


def ask(session: Session, run: str, program: str, wait_s: float) -> Ended:
    """Ask one of the programs that run next to a node's agent (trainer/node/).

    If there is no container, returns the code FAILED with the engine's words; raises nothing for that.
    """
    try:
        return reach.on_host(session).ask_inside(container_name(run), commands.node_program(program), wait_s)
    except DockerFault as fault:
        return Ended(FAILED, "", fault.words)


def _start_one(session: Session, container: NodeContainer) -> None:
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
        # Muster's own error comes first, then Docker's, whose last line may only be "See 'docker run --help'."
        errors = [line for line in lines if line.startswith("error: ")]
        cause = next((line for line in (*errors, *lines) if "rror" in line or "denied" in line), lines[-1])
        text = f"{session.name}: {container.node} was not started: {cause}"
        raise DeployError(text, docker_faults.hint(done.err, session.name))
    audit.note(session, audit.Action.STARTED, container.name, container.run)
