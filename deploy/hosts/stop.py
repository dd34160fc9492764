"""`fab stop`: ask a run on real hosts to stop with a checkpoint, wait for its end and say how it ended; or kill it.

Who follows the run elsewhere sees the same end and cleans up; where nobody does, it is done here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.errors import DONE, DeployError
from ..core.facts import ended_how
from ..core.names import RunId, asked_run
from ..core.results import Results
from ..host import commands
from ..host.facts import Container
from ..report.console import Console
from ..report.interrupts import Detached, Interrupts
from ..report.page import run as page
from ..run import events, folders, outcome, record
from ..run.events import Event
from ..run.outcome import Result
from ..run.progress import State
from ..ssh.session import Session, on_all, open_all
from . import nodes as host_nodes
from . import observe, plan, resume
from .options import Options

# Writing a checkpoint may take a while; what takes longer than this is told, not killed.
PATIENCE_S = 120.0
_LOOK_EVERY_S = 0.3
# A follower removes the containers right after the end; only what it leaves is ours to remove.
_FOLLOWER_S = 3.0


def stop(options: Options, now: bool, console: Console) -> int:
    """Stop the run that is meant; returns 0 once it has ended, however it did.

    Hosts that do not answer are told, and the others stopped. Raises DeployError when nodes still run after
    PATIENCE_S, or when no host has the run.
    """
    asked = asked_run("--run", options.run)
    with (
        Interrupts(console, "looking for the run", "the run goes on") as interrupts,
        open_all(options.load().hosts) as opened,
    ):
        sessions = list(opened.values.values())
        found = observe.containers(sessions)
        faults = {**opened.faults, **found.faults}
        if not found.values:
            opened.all()
            found.all()
        if asked not in plan.runs_of(found.values):
            plan.refuse_foreign(asked, found.values)
        run = plan.choose_run(plan.runs_of(found.values), asked)
        for host, fault in faults.items():
            console.warn(f"{host}: {fault.message}; it is not asked to stop")
        nodes = plan.runs_of(found.values)[run]
        members = [one for one in sessions if one.host.name in nodes]
        interrupts.hold()
        ended = _end(run, members, now, console, interrupts)
        if ended is None:
            return DONE
        state = _state(nodes, ended)
        result = _result(state, nodes, killed=now or interrupts.requests() > 1)
    result = _keep(run, result, state)
    console.note(f"{run}: {result.message or result.verdict}")
    if result.hint:
        console.note(result.hint)
    console.data({"kind": "ended", "run": run, "verdict": result.verdict, "message": result.message})
    return DONE


def _end(
    run: RunId, members: Sequence[Session], now: bool, console: Console, interrupts: Interrupts
) -> list[Event] | None:
    """End the run and take its containers away; what its ranks said last, None when the terminal went away before."""
    killed = now
    if not now:
        interrupts.ask()
    host_nodes.signal(members, run, "SIGKILL" if now else "SIGINT").all()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while going := _going(run, members):
            if interrupts.requests() > 1 and not killed:
                killed = True
                host_nodes.signal(members, run, "SIGKILL").all()
            if time.monotonic() > deadline:
                raise DeployError(
                    f"{run}: still running {PATIENCE_S:.0f} s after the stop, on {', '.join(going)}",
                    f"fab stop --hosts {','.join(going)} --run {run} --now kills it",
                )
            time.sleep(_LOOK_EVERY_S)
    except Detached:
        return None
    said = on_all(members, lambda one: _last_words(one, run))
    follower_ends = time.monotonic() + _FOLLOWER_S
    while _containers(run, members) and time.monotonic() < follower_ends:
        time.sleep(_LOOK_EVERY_S)
    host_nodes.remove(members, run).all()
    return [event for words in said.values.values() for event in words]


def _state(nodes: Mapping[str, Container], said: Sequence[Event]) -> State:
    by_place = sorted(nodes.values(), key=lambda node: node.place)
    state = State(tuple(node.node for node in by_place), script=by_place[0].script)
    for event in said:
        state.apply(event)
    return state


def _result(state: State, nodes: Mapping[str, Container], killed: bool) -> Result:
    """How the run ended; where no rank could say, what was reached, and the nodes that had ended before."""
    if state.verdicts:
        return outcome.final(state)
    result = outcome.killed(state) if killed else outcome.stopped(state)
    gone = [f"; {host} {ended_how(node.code)} before that" for host, node in nodes.items() if node.code is not None]
    return replace(result, message="".join([result.message, *gone]))


def _keep(run: RunId, result: Result, state: State) -> Result:
    """Write the outcome where nobody who follows the run has; the result as it is told here."""
    try:
        run_dir = record.folder_of(folders.RUNS, run)
    except DeployError:  # followed elsewhere: what is called so here is another run
        return result
    there = record.facts(run_dir)
    if not there:
        return result
    if there.get("hosts"):
        first = there["hosts"][0]
        message, hint = (resume.placed(text, run, first) for text in (result.message, result.hint))
        result = replace(result, message=message, hint=hint)
    result = resume.hinted(result, run_dir, bool(state.checkpoint))
    if not (run_dir / "outcome.json").exists():
        seconds = time.time() - float(there.get("starts", [{}])[-1].get("t", time.time()))
        record.close(run_dir, result, state, seconds)
        page.write(run_dir)
    return result


def _containers(run: RunId, members: Sequence[Session]) -> Mapping[str, Container]:
    seen: Results[Any] = observe.containers(members)
    return plan.runs_of(seen.all()).get(run, {})


def _going(run: RunId, members: Sequence[Session]) -> list[str]:
    return [host for host, node in _containers(run, members).items() if node.code is None]


def _last_words(session: Session, run: str) -> list[Event]:
    out = session.run(commands.last_words(f"{session.home}/runs/{run}")).out
    return events.last_words(out.split("\n"), time.time())
