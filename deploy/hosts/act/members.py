"""`muster leave` and `muster join`: a host's node leaves a run gracefully, or comes back (`--min-nodes`).

The node itself decides with the other nodes whether it may leave (node/membership/leave.py). Its container stays,
stopped: it holds no GPU, and has all that the host needs to come back: its place, the run's key, its image. So a join
starts the container again, as an engine does after a reboot, and the other nodes tell it the current epoch. newcomer.py
handles hosts that were not in the run before.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from ...core import fields
from ...core.errors import DONE, BadAnswer, DeployError, UsageError
from ...core.facts import ended_how
from ...core.fields import array, default, document, flag, record, scalar, whole, words
from ...core.names import RunId, node_name
from ...core.text import in_seconds, last_line, subject
from ...door.session import Session, open_all
from ...host import audit, commands
from ...host.facts import Container
from ...host.gpus import parse_claims
from ...job.inventory import Host
from ...job.load import known_cluster, read_run
from ...job.option_words import command_of
from ...job.options import FLAG, Options
from ...report.console import Console
from ...run.files import record as record_of_run
from .. import nodes, which_run
from ..look import ended
from ..node.container import container_name
from ..start import observe
from . import newcomer

# A node that cannot agree with the others gives up after 15 s; its ranks then end within moments. A node ends itself
# if it has seen too few of the others for 30 s.
_ANSWER_S, _END_S, _HEARS_S, _LOOK_EVERY_S = 40.0, 60.0, 45.0, 0.4
_ANSWER = record({"why": words(500), "members": array(node_name, 1024)}, {"needed": default(flag, False)})
_EPOCH = record({"number": whole(), "place": whole(1 << 20, least=-1)}, {}, others=scalar)


@dataclass(frozen=True)
class Answer:
    """A node's answer: `why` it must stay (empty: it left), and who keeps training. `needed`: too few would be left."""

    why: str
    members: tuple[str, ...]
    needed: bool = False


def leave(options: Options, console: Console) -> int:
    """Ask the hosts to leave, one after the other. Returns 0 once all of their nodes have ended.

    Raises UsageError if a node must stay, and DeployError if a host fails; the hosts before it have already left.
    """
    with open_all(known_cluster(options).hosts) as opened:
        sessions = opened.all()
        containers = observe.containers(sessions.values())
        containers.all()
        run, members = ended.find_run(read_run(options.run), opened, containers)
        for host, session in sessions.items():
            refuse_leave(run, session.host, members.get(host))
            if options.dry_run:
                argv = ("docker", "exec", container_name(run), *commands.node_program("leave"))
                _show(host, "ask its node to leave", "wait until it has ended", argv, console)
                continue
            answer = _ask_to_leave(session, run)
            if answer.why:
                raise UsageError(f"{host} cannot leave {run}: {answer.why}", _instead(session.host, run, answer.needed))
            audit.note(session, audit.Action.LEFT, host, run)
            if not _wait(partial(_has_ended, session, run), _END_S):
                console.warn(f"{host}: its node has not ended within {in_seconds(_END_S)}; muster status shows it")
            rest = answer.members
            text = f": {subject(rest, 'continues', 'continue', len(rest))}" if rest else ""
            row = {"kind": "left", "host": host, "run": run, "members": list(rest)}
            console.line(f"{host} has left {run}{text}", row)
    return DONE


def join(options: Options, console: Console) -> int:
    """Let the hosts join, one after the other. Returns 0 once the node of each knows which nodes train.

    Raises UsageError for a host that cannot join, DeployError if one fails; the hosts before it have already joined.
    """
    with open_all(known_cluster(options).hosts) as opened:
        sessions = opened.all()
        wanted, containers = read_run(options.run), observe.containers(list(sessions.values())).all()
        runs = which_run.runs_of(containers)
        which_run.refuse_foreign(wanted, containers)
        if wanted not in runs and wanted and (record_of_run.path_of(RunId(wanted)) / "outcome.json").is_file():
            ended.refuse(wanted, list(sessions.values()))
        run = RunId(wanted) if wanted else which_run.choose_run(runs, wanted)
        members = runs.get(run, {})  # empty on a host that is new to the run
        for host, session in sessions.items():
            if host in members:
                _bring_back(session, run, refuse_join(run, session.host, members[host]), options.dry_run, console)
            else:
                newcomer.join(run, session.host, console, options.dry_run)
                if not options.dry_run:
                    _wait_until_it_hears(session, run, "")
            if not options.dry_run:
                how = "it takes a free place after the next checkpoint, or waits as a spare if no place is free"
                console.line(f"{host} has joined {run}: {how}", {"kind": "joined", "host": host, "run": run})
    return DONE


def refuse_unnamed(options: Options, task: str) -> None:
    """Raise UsageError if the command line has no hosts: those of the file or the record would be the whole run."""
    if not options.hosts.strip():
        raise UsageError(f"{task}: no hosts", f"say which host: muster {task} --hosts gpu-b --run ID")


def refuse_leave(run: str, asked: Host, node: Container | None) -> None:
    """Raise UsageError if a host has no running node of the run, or if the run needs all of its nodes. Pure."""
    host = asked.name
    if node is None:
        raise UsageError(f"{host} has no node of {run}", "muster status shows which hosts have one")
    if not node.least:
        hint = "muster stop ends the whole run with a checkpoint; the next one: muster deploy --min-nodes N"
        raise UsageError(f"{host} cannot leave {run}: without --min-nodes it needs all of its nodes", hint)
    if node.code is not None:
        back = command_of("join", hosts=asked.destination, run=run)
        hint = f"{back} brings it back; muster down removes its container"
        how = "its node " + ended_how(node.code) if node.code else "it has left"
        raise UsageError(f"{host} is not in {run} any more: {how}", hint)


def refuse_join(run: str, asked: Host, node: Container) -> Container:
    """Return the container of a host that may join. Raises UsageError for a host that cannot. Pure."""
    host = asked.name
    if not node.least:
        hint = f"muster stop, then {command_of('deploy', resume=run)}; with {FLAG.min_nodes} N hosts may leave and join"
        raise UsageError(f"{host} cannot join {run}: the run was started without {FLAG.min_nodes}", hint)
    if node.code is None:
        raise UsageError(
            f"{host} is in {run} already: its node is running", command_of("status", hosts=asked.destination)
        )
    return node


def refuse_answer(run: str, asked: Host, answer: str) -> None:
    """Raise UsageError with the host's reason if it has not started its node (scripts/join.sh). Pure."""
    host, rows = asked.name, fields.rows(answer)
    if "overlay" in rows:
        hint = f"{command_of('stop', run=run)}, then muster deploy {FLAG.resume} {run} {FLAG.overlay}"
        raise UsageError(f"{host} cannot join {run}: its part of the overlay network was removed with its node", hint)
    if having := parse_claims(rows.get("claim", ())):
        others = ", ".join(claim.shown for claim in having)
        what = f"{host} cannot join {run}: its GPUs are taken by {others}"
        raise UsageError(what, command_of("gpus", hosts=asked.destination))
    if "started" not in rows:
        raise BadAnswer("the start of a node", "started", answer[:200])


def read(text: str) -> Answer:
    """Read the answer of trainer/node/membership/leave.py. Raises BadAnswer."""
    value = _ANSWER(document(text, "a node's answer"), "a node's answer")
    return Answer(value["why"], tuple(value["members"]), value.get("needed", False))


def knows_epoch(text: str) -> bool:
    """Whether a node knows an epoch of the others, from the file that its agent writes for torchrun. Pure."""
    try:
        return bool(_EPOCH(document(text, "an epoch"), "an epoch")["number"])
    except BadAnswer:
        return False


def _ask_to_leave(session: Session, run: str) -> Answer:
    done = nodes.ask(session, run, "leave", _ANSWER_S)
    if not done.code:
        return read(done.out)
    if _has_ended(session, run, (DONE,)):  # it had already left before it could answer
        return Answer("", ())
    why = last_line(done.err, f"code {done.code}")
    host = session.name
    raise DeployError(f"{host}: its node does not say whether it may leave: {why}", "is it running? muster status")


def _instead(asked: Host, run: str, needed: bool) -> str:
    if needed:
        return f"bring back a host that was lost or has left; or end the whole run: muster stop --run {run}"
    return f"try again, or check it with: {command_of('status', hosts=asked.destination)}"


def _bring_back(session: Session, run: RunId, node: Container, dry_run: bool, console: Console) -> None:
    """Start a host's node again, and wait until it hears from the other nodes."""
    host, argv = session.name, commands.script("join", container_name(run))
    if dry_run:
        _show(host, "start its node again", "wait until it hears from the others", argv, console)
        return
    known = _epoch(session, run, node.node)
    refuse_answer(run, session.host, session.run(argv).out)
    audit.note(session, audit.Action.JOINED, host, run)
    if node.secrets:
        hint = f"if no command follows the run: {command_of('attach', run=run)}, with the secrets in this shell"
        console.note(f"{host}: its node has started, and waits for its secrets: {hint}")
    else:
        _wait_until_it_hears(session, run, known)


def _wait_until_it_hears(session: Session, run: RunId, known: str) -> None:
    """Wait until the node reports an epoch other than `known`, its last one. Otherwise kill it; raises DeployError."""
    host, why = session.name, f"it has not heard from the other nodes for {in_seconds(_HEARS_S)}"

    def hears_or_is_over() -> bool:
        nonlocal why
        now = _node_on(session, run)
        if now is None or now.code is not None or now.status == "restarting":
            why = "its container no longer exists" if now is None else f"its node {ended_how(now.last_code)}"
            return True
        if (epoch := _epoch(session, run, now.node)) == known or not knows_epoch(epoch):
            return False
        why = ""
        return True

    _wait(hears_or_is_over, _HEARS_S)
    if why:
        nodes.signal([session], run, "SIGKILL")  # otherwise its engine starts it again
        raise DeployError(
            f"{host} did not join {run}: {why}", command_of("logs", hosts=session.host.destination, run=run)
        )


def _wait(is_over: Callable[[], bool], most_s: float) -> bool:
    """Wait until `is_over` returns true, at most `most_s` seconds; return whether it did."""
    until = time.monotonic() + most_s
    while not (over := is_over()) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    return over


def _node_on(session: Session, run: str) -> Container | None:
    return which_run.nodes_of(run, [session]).get(session.name)


def _has_ended(session: Session, run: str, codes: Collection[int] = range(256)) -> bool:
    node = _node_on(session, run)
    return node is None or node.code in codes


def _epoch(session: Session, run: RunId, node: str) -> str:
    # This file exists while the node's agent runs.
    return session.run(commands.document(run, f"nodes/.{node}/.epoch"), check=False).out.strip()


def _show(host: str, step: str, then: str, argv: Sequence[str], console: Console) -> None:
    console.text(f"{host}: {step}, and {then}\n    {shlex.join(argv)}")
    console.data({"kind": "step", "host": host, "text": step, "argv": list(argv)})
