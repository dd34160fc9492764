"""`fab leave`: hosts leave a run in order, and the others train on without them (`--min-nodes`).

The node itself decides with the others whether it may go (trainer/node/leave.py). Its container stays, stopped: it
holds no GPU, and has all that the host needs to come back.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..causes.docker_faults import DockerFault
from ..core.errors import DONE, FAILED, DeployError, UsageError
from ..core.facts import ended_how
from ..core.fields import array, default, document, flag, record, words
from ..core.names import RunId, node_name
from ..core.program import FAB
from ..core.text import in_seconds, subject
from ..door.session import Session, open_all
from ..engine import reach
from ..engine.engine import Ended
from ..host import audit, commands
from ..host.facts import Container
from ..job.load import load_cluster, read_run
from ..job.options import Options
from ..report.console import Console
from . import ended, observe, plan
from .container import container_name

# A node that cannot agree with the others gives up after 15 s; then its ranks end within moments.
_ANSWER_S, _END_S, _LOOK_EVERY_S = 40.0, 60.0, 0.3
_ANSWER = record({"why": words(500), "members": array(node_name, 1024)}, {"needed": default(flag, False)})


@dataclass(frozen=True)
class Answer:
    """What a node says: `why` it must stay (empty: it has left), and who trains on. `needed`: too few would be left."""

    why: str
    members: tuple[str, ...]
    needed: bool = False


def leave(options: Options, console: Console) -> int:
    """Let the hosts leave, one after the other. Returns 0 once the nodes of all have ended.

    Raises UsageError where a node must stay; those before it have left then. Raises DeployError if a host fails.
    """
    refuse_unnamed(options, "leave")
    with open_all(load_cluster(options).hosts) as opened:
        sessions = opened.all()
        run, nodes = chosen(options.run, list(sessions.values()))
        for host, session in sessions.items():
            refuse(run, host, nodes.get(host))
            if options.dry_run:
                _show(host, ("docker", "exec", container_name(run), *commands.node_program("leave")), console)
                continue
            answer = _ask(session, run)
            if answer.why:
                raise UsageError(f"{host} cannot leave {run}: {answer.why}", _instead(host, run, answer.needed))
            audit.note(session, f"{run} left by {host}")
            text = f"{host} has left {run}"
            if not _until_ended(session, run):
                console.warn(f"{host}: its node has not ended within {in_seconds(_END_S)}; {FAB} status shows it")
            text += f": {subject(answer.members, 'trains', 'train', len(answer.members))} on" if answer.members else ""
            console.line(text, {"kind": "left", "host": host, "run": run, "members": list(answer.members)})
    return DONE


def refuse_unnamed(options: Options, task: str) -> None:
    """Raise UsageError if the command line names no hosts: those of the file or the record would be all of the run."""
    if not options.hosts.strip():
        raise UsageError(f"{task}: no hosts", f"name the host: {FAB} {task} --hosts gpu-b --run ID")


def chosen(run: str, sessions: Sequence[Session]) -> tuple[RunId, Mapping[str, Container]]:
    """The run that is meant, and its containers by host. Raises DeployError if these hosts do not have it."""
    return ended.choose(read_run(run), observe.containers(sessions).all(), sessions)


def refuse(run: str, host: str, node: Container | None) -> None:
    """Raise UsageError for a host that has no node to leave, or whose node the others cannot spare. Pure."""
    if node is None:
        raise UsageError(f"{host} has no node of {run}", f"{FAB} status shows who has")
    if not node.least:
        hint = f"{FAB} stop ends the whole run with a checkpoint; the next one: {FAB} deploy --min-nodes N"
        raise UsageError(f"{host} cannot leave {run}: without --min-nodes it needs all of its nodes", hint)
    if node.code is not None:
        hint = f"{FAB} join --hosts {host} --run {run} brings it back; {FAB} down removes its container"
        how = "its node " + ended_how(node.code) if node.code else "it has left"
        raise UsageError(f"{host} is not in {run} any more: {how}", hint)


def read(text: str) -> Answer:
    """Read the answer of trainer/node/leave.py. Raises BadAnswer."""
    value = _ANSWER(document(text, "a node's answer"), "a node's answer")
    return Answer(value["why"], tuple(value["members"]), value.get("needed", False))


def _ask(session: Session, run: str) -> Answer:
    host = session.host.name
    try:
        done = reach.on_host(session).ask_inside(container_name(run), commands.node_program("leave"), _ANSWER_S)
    except DockerFault as fault:
        done = Ended(FAILED, "", fault.words)
    if not done.code:
        return read(done.out)
    if _ended_well(session, run):  # it had left before its answer was on the way
        return Answer("", ())
    why = (done.err.strip() or f"code {done.code}").splitlines()[-1]
    if "No module named" in why:
        raise DeployError(f"{host}: the image of {run} is of an older version, which cannot leave", f"{FAB} stop")
    raise DeployError(f"{host}: its node does not say whether it may leave: {why}", f"does it run? {FAB} status")


def _until_ended(session: Session, run: str) -> bool:
    until = time.monotonic() + _END_S
    while time.monotonic() < until:
        if _ended_well(session, run):
            return True
        time.sleep(_LOOK_EVERY_S)
    return False


def _ended_well(session: Session, run: str) -> bool:
    containers = observe.containers([session], run).all()
    return all(node.code == DONE for node in plan.runs_of(containers).get(RunId(run), {}).values())


def _instead(host: str, run: str, needed: bool) -> str:
    if needed:
        return f"bring back one that was lost or has left; or end the whole run: {FAB} stop --run {run}"
    return f"try again, or see how it goes: {FAB} status --hosts {host}"


def _show(host: str, argv: Sequence[str], console: Console) -> None:
    console.text(f"{host}: ask its node to leave, and wait until it has ended\n    {shlex.join(argv)}")
    console.data({"kind": "step", "host": host, "text": "ask its node to leave", "argv": list(argv)})
