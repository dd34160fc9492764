"""`muster stop`: ask a run on hosts to stop, or kill it (--now), and wait for its end. The nodes enforce --grace.

Another process may follow the run; it sees the same end and removes the containers. Otherwise this command does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...core.errors import DONE, DeployError
from ...core.facts import ended_how
from ...core.names import RunId
from ...core.results import named
from ...core.text import in_seconds
from ...door.session import Session, among, on_all, open_all
from ...host import last_words
from ...host.facts import Container
from ...host.reached import as_typed
from ...job.load import known_cluster, read_run
from ...job.option_words import command_of, stop_wait_s
from ...job.options import Options
from ...report import ending
from ...report.console import Console
from ...report.interrupts import Detached, Interrupts
from ...report.text import NO_FILES
from ...run import outcome
from ...run.events import Event
from ...run.files import record
from ...run.outcome import Result
from ...run.progress import State
from ...run.state import times
from .. import nodes as host_nodes
from .. import which_run
from ..look import ended as known_end
from ..start import observe, resume

_LOOK_EVERY_S = 0.3
# A follower removes the containers right after the end. After this time the stop command removes what is left.
_FOLLOWER_S = 3.0


def stop(options: Options, now: bool, console: Console) -> int:
    """Stop the chosen run. Returns 0 once it has ended, whatever its verdict.

    Hosts that do not answer get a warning; the others are stopped. Raises DeployError if nodes keep running for too
    long, or if no host has the run.
    """
    wanted, cluster = read_run(options.run), known_cluster(options)
    with (
        Interrupts(console, "looking for the run", "the run continues") as interrupts,
        open_all(cluster.hosts) as opened,
    ):
        sessions = list(opened.values.values())
        containers = observe.containers(sessions)
        faults = {**opened.faults, **containers.faults}
        run, nodes = known_end.find_run(wanted, opened, containers)
        for host, fault in faults.items():
            console.warn(f"{named(host, fault)}; Muster could not ask its node to stop")
        members = among(sessions, nodes)
        interrupts.hold()
        if now:
            tell_followers(run)
        elif any(node.code is None for node in nodes.values()):
            interrupts.ask()
        ended = _end(run, members, now, interrupts)
        if ended is None:
            return DONE
        since = times.started(record.facts(record.path_of(run)))
        state = state_of(
            nodes, [event for event in ended if event["t"] >= since]
        )  # earlier starts may have had more ranks
        result = _result(state, nodes, killed=now or interrupts.requests() > 1)
    lost = [host.destination for host in cluster.hosts if host.name in faults]
    end = record_end(run, result, state, nodes, lost, console)
    where = f", at {state.ranks.step_words}" if state.script and result.from_ranks and state.step else ""
    ending.show_stopped(run, end, console, where)
    files = "its files" if outcome.may_continue(state) else f"{NO_FILES}; its logs"
    console.note(f"{files}: {command_of('fetch', hosts=as_typed(members), run=run)}")
    return DONE


def tell_followers(run: RunId) -> None:
    """Note in the local run folder that the user asked for the end, so that a local follower reports no crash."""
    with suppress(DeployError, OSError):  # another machine follows the run, or none does
        run_dir = record.folder_of(run)
        if record.facts(run_dir) and not (run_dir / "outcome.json").exists():
            (run_dir / "outcome").mkdir(exist_ok=True)
            asked = {"verdict": "stopped", "message": outcome.AT_ONCE, "at_once": True}
            record.write_json(run_dir / "outcome" / "asked.json", asked)


def _end(run: RunId, members: Sequence[Session], now: bool, interrupts: Interrupts) -> list[Event] | None:
    """End the run and remove its containers. Returns the ranks' last events, or None if the terminal closed first."""
    killed = now
    host_nodes.signal(members, run, "SIGKILL" if now else "SIGINT").all()
    patience_s = stop_wait_s(record.facts(record.path_of(run)))
    deadline, hosts = time.monotonic() + patience_s, as_typed(members)
    try:
        while running := [host for host, node in which_run.nodes_of(run, members).items() if node.code is None]:
            if interrupts.requests() > 1 and not killed:
                killed = True
                host_nodes.signal(members, run, "SIGKILL").all()
            if time.monotonic() > deadline:
                raise DeployError(
                    f"{run}: still running on {', '.join(running)}, {in_seconds(patience_s)} after the request to stop",
                    f"kill it: {command_of('stop', hosts=hosts, run=run, now=True)}",
                )
            time.sleep(_LOOK_EVERY_S)
    except Detached:
        return None
    heard = on_all(members, lambda session: last_words.of_run(session, run))
    follower_ends = time.monotonic() + _FOLLOWER_S
    while which_run.nodes_of(run, members) and time.monotonic() < follower_ends:
        time.sleep(_LOOK_EVERY_S)
    host_nodes.remove(members, run).all()
    return [event for words in heard.values.values() for event in words]


def state_of(nodes: Mapping[str, Container], words: Sequence[Event]) -> State:
    """The state of a run from its containers and its ranks' last events (`words`)."""
    in_order = sorted(nodes.values(), key=lambda node: node.place)
    state = State(tuple(node.node for node in in_order), script=in_order[0].script)
    for event in sorted(words, key=lambda event: float(event["t"])):
        state.apply(event)
    return state


def _result(state: State, nodes: Mapping[str, Container], killed: bool) -> Result:
    """How the run ended. Without a rank's verdict: the step it reached, and the nodes that had ended earlier."""
    if state.verdicts:
        return outcome.conclude(state, time.time())
    result = outcome.killed(state) if killed else outcome.stopped(state)
    earlier = [f"; {host} {ended_how(node.code)} before that" for host, node in nodes.items() if node.code is not None]
    return replace(result, message="".join([result.message, *earlier]))


def record_end(
    run: RunId, result: Result, state: State, nodes: Mapping[str, Container], lost: Sequence[str], console: Console
) -> Mapping[str, Any]:
    """Write how the run ended, unless a follower of the run has; returns its fields with paths on hosts and a hint.

    `nodes`: the run's containers by host. `lost`: hosts that do not answer, as the record names them.
    """
    try:
        run_dir = record.folder_of(run)
    except DeployError:  # another machine follows the run; the local folder with this name belongs to another run
        return vars(result)
    facts = record.facts(run_dir)
    if not facts:
        return vars(result)
    least, hosts = facts.get("least"), facts.get("hosts", ())
    if hosts:
        result = resume.result_on_hosts(
            result, run, hosts[0], {host: node.node for host, node in nodes.items()}, bool(least)
        )
    result = resume.with_resume_hint(result, run_dir, outcome.may_continue(state), lost if least else (), bool(least))
    if (run_dir / "outcome.json").exists():
        return vars(result)
    fetch = command_of("fetch", hosts=",".join(record.own_fields(run_dir).get("hosts", ())), run=run)
    return ending.write(run_dir, result, state, console, fetch=fetch)
