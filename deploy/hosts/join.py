"""`fab join`: a host that has left a run, or whose node was lost, takes part in it again (`--min-nodes`).

Its container is still there, and has all that the node needs: its place, the run's key, its image. So it is started
again, as an engine starts it after a reboot, and hears from the others which epoch is on.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence

from ..core import fields
from ..core.errors import DONE, BadAnswer, DeployError, UsageError
from ..core.facts import ended_how
from ..core.fields import document, record, scalar, whole
from ..core.names import RunId
from ..core.program import FAB
from ..core.text import in_seconds
from ..door.session import Session, open_all
from ..host import audit, commands
from ..host.facts import Container
from ..host.gpus import parse_claims
from ..job.again import command_of
from ..job.load import load_cluster, read_run
from ..job.options import FLAG, Options
from ..report.console import Console
from ..run import record as record_of_run
from . import ended, newcomer, nodes, observe, plan
from .container import container_name
from .leave import refuse_unnamed

# A node ends itself where it has seen too few of the others for 30 s.
_HEARS_S, _LOOK_EVERY_S = 45.0, 0.5
_EPOCH = record({"number": whole(), "place": whole(-1, 1 << 20)}, {}, others=scalar)


def join(options: Options, console: Console) -> int:
    """Let the hosts take part, one after the other. Returns 0 once the node of each knows who trains.

    Raises UsageError for a host that cannot join, DeployError if one fails; those before it have joined then.
    """
    refuse_unnamed(options, "join")
    with open_all(load_cluster(options).hosts) as opened:
        sessions = opened.all()
        run, containers = _chosen(options.run, list(sessions.values()))
        for host, session in sessions.items():
            if host not in containers:
                node = newcomer.join(run, session.host, console, options.dry_run)
                if not options.dry_run:
                    _until_it_hears(session, run, node, "")
                    _tell(run, host, console)
                continue
            node = refuse(run, host, containers[host])
            if options.dry_run:
                _show(host, commands.script("join", container_name(run)), console)
                continue
            known = _epoch(session, run, node.node)
            refuse_answer(run, host, session.run(commands.script("join", container_name(run))).out)
            audit.note(session, f"{run} joined by {host}")
            if node.secrets:
                hint = f"if no command follows the run: {command_of('attach', run=run)}, with the secrets in this shell"
                console.note(f"{host}: its node has started, and waits for its secrets: {hint}")
            else:
                _until_it_hears(session, run, node, known)
            _tell(run, host, console)
    return DONE


def _tell(run: str, host: str, console: Console) -> None:
    how = "it takes a free place after the next checkpoint, or waits as a spare where none is free"
    console.line(f"{host} has joined {run}: {how}", {"kind": "joined", "host": host, "run": run})


def refuse(run: str, host: str, node: Container) -> Container:
    """The container of a host that may join. Raises UsageError for one that cannot. Pure."""
    if not node.least:
        hint = f"{FAB} stop, then {command_of('deploy', resume=run)}; with {FLAG.min_nodes} N hosts may leave and join"
        raise UsageError(f"{host} cannot join {run}: it runs without {FLAG.min_nodes}", hint)
    if node.code is None:
        raise UsageError(f"{host} is in {run} already: its node runs", command_of("status", hosts=host))
    return node


def refuse_answer(run: str, host: str, answer: str) -> None:
    """Raise UsageError if a host has not started its node, as it says why (scripts/join.sh). Pure."""
    rows = fields.rows(answer)
    if "overlay" in rows:
        hint = f"{command_of('stop', run=run)}, then {FAB} deploy {FLAG.resume} {run} {FLAG.overlay}"
        raise UsageError(f"{host} cannot join {run}: its part of the overlay network was removed with its node", hint)
    if having := parse_claims(rows.get("claim", ())):
        others = ", ".join(claim.shown for claim in having)
        raise UsageError(f"{host} cannot join {run}: its GPUs are taken by {others}", command_of("gpus", hosts=host))
    if "started" not in rows:
        raise BadAnswer("the start of a node", "started", answer[:200])


def _chosen(run: str, sessions: Sequence[Session]) -> tuple[RunId, Mapping[str, Container]]:
    """The run that is meant, and its containers by host: none on a host that is new to it."""
    wanted, containers = read_run(run), observe.containers(sessions).all()
    runs = plan.runs_of(containers)
    plan.refuse_foreign(wanted, containers)
    if wanted not in runs and wanted and (record_of_run.path_of(RunId(wanted)) / "outcome.json").is_file():
        ended.refuse(wanted, sessions)
    name = RunId(wanted) if wanted else plan.choose_run(runs, wanted)
    return name, runs.get(name, {})


def _until_it_hears(session: Session, run: RunId, node: Container, known: str) -> None:
    """Wait until the node tells another epoch than the one `known` before. Raises DeployError, and ends it, if not."""
    host, until = session.host.name, time.monotonic() + _HEARS_S
    why = f"it has not heard from the others for {in_seconds(_HEARS_S)}"
    while time.monotonic() < until:
        now = plan.runs_of(observe.containers([session], run).all()).get(run, {}).get(host)
        if now is None or now.code is not None or now.status == "restarting":
            why = "its container is gone" if now is None else f"its node {ended_how(now.last_code)}"
            break
        if (epoch := _epoch(session, run, node.node)) != known and has_heard(epoch):
            return
        time.sleep(_LOOK_EVERY_S)
    nodes.signal([session], run, "SIGKILL")  # or its engine tries again
    raise DeployError(f"{host} did not join {run}: {why}", command_of("logs", hosts=host, run=run))


def has_heard(text: str) -> bool:
    """Whether a node knows an epoch of the others, by the file that its agent writes for torchrun. Pure."""
    try:
        return bool(_EPOCH(document(text, "an epoch"), "an epoch")["number"])
    except BadAnswer:
        return False


def _epoch(session: Session, run: RunId, node: str) -> str:
    # The folder is there while the node's agent runs.
    return session.run(commands.document(run, f"nodes/.{node}/.epoch"), check=False).out.strip()


def _show(host: str, argv: Sequence[str], console: Console) -> None:
    console.text(f"{host}: start its node again, and wait until it hears from the others\n    {shlex.join(argv)}")
    console.data({"kind": "step", "host": host, "text": "start its node again", "argv": list(argv)})
