"""`muster attach`, `stop`, `fetch`, `runs` and `down` for runs on this machine, also if their `up` was killed.

`muster up` drives the run, stops its nodes and records its end. If it was killed, the next command that needs the run's
end records it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import DETACHED, DONE, DeployError
from ..core.facts import EngineFacts, NodeState
from ..core.names import RunId
from ..engine import client
from ..job.option_words import command_of
from ..report import ending, tables
from ..report.console import Console
from ..report.interrupts import CONTINUES, Detached, Interrupts
from ..report.page import run as page
from ..report.script_lines import ShownRanks, shown_ranks
from ..run import environment, follow, outcome
from ..run.files import folders, locks, record, recorded_ends, standing
from ..run.follower import Follower
from ..run.output import RankLogs
from ..run.progress import State
from ..run.state import times
from ..run.state.story import CatchingUp
from . import backends, processes

_LOOK_S = 0.3
UNKNOWN_END = "it is not running any more, and nobody knows how it ended: its command `muster up` was killed"


def attach(run_dir: Path, rank: str, console: Console) -> int:
    """Follow the run to its end, or show how it ended; return its exit code."""
    ranks = shown_ranks(rank)
    with Interrupts(console, "looking for the run", CONTINUES) as interrupts:
        if not is_over(run_dir):
            interrupts.hold()
            interrupts.leave_by_ctrl_c(_command("attach", run_dir), _command("stop", run_dir))
            try:
                _await_start(run_dir, interrupts, console)
                _follow(run_dir, ranks, interrupts, console)
            except Detached:
                interrupts.tell_way_back()
                return DETACHED
    known_end(run_dir, console)
    return ending.show_again(run_dir, console, "")


def stop(run_dir: Path, now: bool, console: Console) -> int:
    """Stop the run, with time to save or (`now`) immediately, and report how it ended."""
    with Interrupts(console, "looking for the run", CONTINUES) as interrupts:
        if not is_over(run_dir):
            interrupts.hold()
            interrupts.ask()
            try:
                _await_stop(run_dir, now, interrupts, console)
            except Detached:  # the terminal has gone
                return DONE
            if not run_dir.exists():  # its command has undone the start
                console.note(f"{run_dir.name} was stopped while it was starting: nothing of it is left")
                return DONE
    ending.show_stopped(run_dir.name, known_end(run_dir, console), console)
    console.note(f"its files: {folders.display_path(run_dir)}")
    return DONE


def fetch(run_dir: Path, console: Console) -> Path:
    """Report where the files are, and build the report; return the folder. Raises as folders.ask_link does."""
    folders.ask_link(folders.RUNS)
    record_end(run_dir, console)
    page.write(run_dir)
    work = run_dir / "work"
    wrote = f"; the script's files are in {folders.display_path(work)}" if work.is_dir() else ""
    console.note(f"{run_dir.name} is a run on this machine: its files are here{wrote}")
    return run_dir


def stop_all(console: Console, run: str) -> int:
    """`muster down`: end every run of this folder, or only `run`, on all local backends. Returns the exit code."""
    engine, count = client.find_engine(), 0
    for backend in backends.BACKENDS.values():
        for run_id in sorted(name for name in backend.running(folders.RUNS, engine) if run in ("", name)):
            backend.end(record.path_of(RunId(run_id)), console.note)
            count += 1
    refuse_silent(engine)
    starting = [path for path in record.run_dirs(folders.RUNS) if run in ("", path.name) and record.is_starting(path)]
    for run_dir in starting:  # perhaps on hosts
        console.warn(f"{run_dir.name} is starting, and has no nodes yet: {_command('stop', run_dir)}")
    if count:
        console.note(f"down: nothing of {run or 'the runs of this folder'} is left on this machine")
    elif not starting:
        console.note("nothing was running on this machine; on hosts: muster down --hosts a,b")
    return DONE


def refuse_silent(engine: EngineFacts) -> None:
    """Raise DeployError if the engine has not said which containers it runs: nothing may count as ended."""
    if engine.silent:
        raise DeployError(f"could not tell which containers run: {engine.reason}", "docker ps; then the same again")


def list_all(console: Console, named: Collection[str] = ()) -> None:
    """`make runs`: list all runs, or those that are `named`, and say who knows about runs that are elsewhere."""
    for run_dir in record.run_dirs(folders.RUNS):
        if not named or run_dir.name in named:
            record_end(run_dir, console)
    runs = recorded_ends.listing(folders.RUNS, live_runs(), named)
    console.table(tables.FOLDERS_HEAD, tables.folder_rows(runs), tables.folder_values(runs))
    for ask in dict.fromkeys(run.ask for run in runs[::-1] if run.ask and not console.as_json):
        console.hint(f"whether runs elsewhere are going on: {ask}")
    if not runs:
        console.note("no runs yet: `muster up` starts one")


def live_runs(runs: Path | None = None) -> frozenset[str]:
    """The runs of this folder (or of `runs`) that have nodes on this machine."""
    return backends.running(runs or folders.RUNS, client.find_engine())


def going_on() -> list[str]:
    """The runs of this folder on this machine that are starting, or running, the newest last."""
    live, elsewhere = live_runs(), (record.HOSTS, record.SLURM)
    driven = [path for path in record.run_dirs(folders.RUNS) if locks.is_held(path / ".lock")]
    here = {path.name for path in driven if record.facts(path).get("backend") not in elsewhere}
    return sorted(live | here, key=lambda run: recorded_ends.begun(record.path_of(RunId(run))))


def is_over(run_dir: Path, drivers: Sequence[processes.Process] = ()) -> bool:
    """Whether neither a node of the run nor the command that drives it lives. `drivers`: those already known."""
    return not any(map(processes.is_running, drivers)) and not processes.drivers(run_dir) and not _has_nodes(run_dir)


def is_running_here(run_dir: Path) -> bool:
    """Whether it is a run of this machine, and is not over."""
    return is_local(run_dir) and not is_over(run_dir)


def record_end(run_dir: Path, console: Console) -> dict[str, Any]:
    """How the run ended; {} if it has not ended, or its end is unknown.

    If its command was killed before it recorded the end, the end is derived from the nodes' verdicts and recorded now.
    """
    if end := recorded_ends.end_of(run_dir):
        return end
    is_here = is_local(run_dir) and standing.is_of_this_machine(run_dir)
    if not is_here or not any(run_dir.glob("outcome/*.json")) or not is_over(run_dir):
        return {}
    if (lock := locks.hold_followed(run_dir)) is None:
        return {}
    try:
        _backend(run_dir).end(run_dir, lambda _: None)  # removes containers that have ended
        state, follower = _state(run_dir), Follower(run_dir, from_start=True)
        while events := follower.read():
            for event in events:
                state.apply(event, time.time())
        if not state.verdicts:
            return {}
        result = outcome.conclude(state, time.time())
        if result.verdict != "done":
            result = replace(result, message=f"its command `muster up` was killed: {result.message}")
        ending.write(run_dir, local_result(result, state, run_dir), state, console)
        return recorded_ends.end_of(run_dir)
    finally:
        lock.release()


def local_result(result: outcome.Result, state: State, run_dir: Path) -> outcome.Result:
    """The end of a run on this machine. Paths in a container (/muster/runs/<id>) become those that the user can open.

    If the run was stopped, add a hint on how to continue from what it wrote.
    """
    message = result.message.replace(f"{environment.RUNS_IN_CONTAINER}/{run_dir.name}", str(run_dir))
    result = replace(result, message=message.replace(str(run_dir), folders.display_path(run_dir)))
    if result.verdict != "stopped" or result.hint or not outcome.may_continue(state):
        return result
    return replace(result, hint=f"continue with the files that it wrote: muster resume {run_dir.name}")


def known_end(run_dir: Path, console: Console) -> dict[str, Any]:
    """The end of a run that is over. Raises DeployError if no end was recorded."""
    if end := record_end(run_dir, console):
        return end
    run = run_dir.name
    if not standing.is_of_this_machine(run_dir):
        machine = record.facts(run_dir)["machine"]
        raise DeployError(
            f"{run}: it was started on {machine}, and this machine cannot see whether it is going on",
            f"on {machine}: {command_of('status', run=run)}",
        )
    if not (run_dir / "record.json").exists():
        raise DeployError(
            f"{run}: it has no record: its command was killed before its nodes started, or its files were removed",
            f"to remove what is left: {command_of('down', run=run, delete=True)}",
        )
    if not record.own_fields(run_dir):
        remove = command_of("down", run=run, delete=True)
        raise DeployError(f"{run}: you did not start this run", f"`muster up` starts one; to remove this one: {remove}")
    raise DeployError(
        f"{run}: {UNKNOWN_END}",
        f"continue it: muster resume {run}; what it printed: {_command('logs', run_dir)}",
    )


def _await_start(run_dir: Path, interrupts: Interrupts, console: Console) -> None:
    """Wait until the run has a record, with which it starts its nodes. DeployError: its start was undone."""
    ask = _Asking(run_dir)
    if record.is_starting(run_dir):
        console.note(f"{run_dir.name} is starting: its nodes come next")
    while record.is_starting(run_dir):
        ask.at(interrupts.requests())
        time.sleep(_LOOK_S)
    if not run_dir.exists():
        raise DeployError(f"{run_dir.name} did not start: nothing of it is left", "its own command says why")


def _follow(run_dir: Path, ranks: ShownRanks, interrupts: Interrupts, console: Console) -> None:
    """Show the run until it is over. Raises Detached if the user leaves it."""
    known, state = record.facts(run_dir), _state(run_dir)
    state.story.recall(record.story_of(run_dir))
    what = environment.what_runs(known.get("arguments") or [], state.script)
    # The run is on this machine's own clock, so no clock difference counts.
    follower = Follower(run_dir, from_start=True, since=state.ranks.span.since + times.CLOCKS_DIFFER_S)
    logs = RankLogs(run_dir)
    here, ask = CatchingUp(state.story, time.time()), _Asking(run_dir)
    lives = [NodeState(name, "running") for name in state.names]
    with console.following(state, what, str(known.get("why", "")), ranks) as tell:
        over, drivers = False, processes.drivers(run_dir)
        while not over:
            over = is_over(run_dir, drivers)
            events = [*follower.read(), *([] if over else follow.changes(lives, state))]
            for event in events:
                state.apply(event, time.time())
            state.inquire(time.time())
            for part in here.parts([*events, *logs.take(state.ranks.began)], time.time()):
                tell(part)
            ask.at(interrupts.requests())
            time.sleep(_LOOK_S)
        tell(here.rest())


def _await_stop(run_dir: Path, now: bool, interrupts: Interrupts, console: Console) -> None:
    ask, drivers = _Asking(run_dir), processes.drivers(run_dir)
    with console.waiting("stop") as say:
        say(run_dir.name)
        while not is_over(run_dir, drivers):
            ask.at(interrupts.requests() + now)
            time.sleep(_LOOK_S)


class _Asking:
    """Asks a run to stop: the first time with time to save, the second time immediately."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir, self._asked = run_dir, 0

    def at(self, count: int) -> None:
        """Ask `count` times in total. The run's own command carries it out; if that is gone, this one does."""
        for number in (signal.SIGTERM, signal.SIGINT)[self._asked : count]:
            self._asked += 1
            drivers = processes.drivers(self._run_dir)
            processes.send_signal(drivers, number)
            if not drivers:
                _backend(self._run_dir).end(self._run_dir, lambda _: None, at_once=count > 1)


def _state(run_dir: Path) -> State:
    known = record.facts(run_dir)
    names, script, roles = known.get("nodes") or (), bool(known.get("script")), known.get("role_of") or {}
    return State(names, script=script, least=known.get("least") or 0, since=times.started(known), roles=roles)


def is_local(run_dir: Path) -> bool:
    """Whether it is a run of this machine."""
    return record.facts(run_dir).get("backend") in backends.BACKENDS


def _has_nodes(run_dir: Path) -> bool:
    if _backend(run_dir).in_containers:
        return any(container.as_node().state == "running" for container in client.states(run_dir.name))
    return bool(processes.labelled(run_dir))


def _backend(run_dir: Path) -> type[backends.LocalBackend]:
    return backends.BACKENDS.get(str(record.facts(run_dir).get("backend")), backends.ProcessBackend)


def _command(task: str, run_dir: Path) -> str:
    return command_of(task, run=run_dir.name)
