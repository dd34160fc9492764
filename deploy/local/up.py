"""One `up`, whole: look, plan, start, follow, record. Other modules do each step; this one has their order.

However it ends, no process or container of the run is left, and its folder says how it ended.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import DeployError, EngineLost, UsageError
from ..core.facts import EngineFacts
from ..core.program import MAKE, option
from ..engine import client
from ..report import ending
from ..report.console import Console
from ..report.interrupts import Interrupts
from ..run import environment, folders, follow, launch, locks, record
from ..run.backend import Backend
from ..run.folders import display_path
from ..run.outcome import Result
from ..run.progress import State
from . import backends, plan
from . import machine as observe

DEFAULT_WORKERS = 2


@dataclass(frozen=True)
class Options:
    """What the user asked for, as text; empty means not said."""

    workers: str = ""
    backend: str = ""
    resume: str = ""
    arguments: str = ""


def up(options: Options, console: Console) -> int:
    """Train as asked, to the end; returns the exit code. Raises DeployError for faults before the first node starts."""
    choice = record.choose(folders.RUNS, options.resume, _split(options.arguments))
    workers = plan.check_workers(options.workers or str(DEFAULT_WORKERS if choice.workers is None else choice.workers))
    asked = options.backend or "auto"
    facts = client.find_engine() if asked in ("auto", "docker") else EngineFacts(answers=False)
    where = plan.choose_backend(asked, facts, backends.BACKENDS)
    with (
        Interrupts(console, "starting the run", "nothing of it is left", detaches=False) as interrupts,
        ExitStack() as held,
    ):
        backend_class = backends.BACKENDS[where.name]
        port = _choose_port(held, console) if backend_class.meets_on_machine else environment.MASTER_PORT
        taken = client.runs_there() if facts.answers else frozenset()
        run_dir = choice.run_dir or record.make_folder(folders.RUNS, choice.arguments, time.time(), taken)
        _take(run_dir, held, facts)
        machine = observe.machine()
        run = environment.local_spec(
            run_dir, choice.start, workers, choice.arguments, port, machine.cores, machine.system
        )
        if choice.run_dir:
            console.note(f"continuing {display_path(run_dir)}, start {choice.start}")
        backend = backend_class(run)
        held.callback(backend.clean)
        state = State(run.names)
        follower = follow.Follower(run_dir)
        began = 0.0

        def open_record() -> dict[str, bytes]:
            nonlocal began  # what building the image took is not the run's
            began = time.time()
            return record.open_start(run_dir, choice, where.name, where.why, run.names, began)

        before = launch.launch(backend, run_dir, bool(choice.run_dir), open_record, interrupts.hold)
        result = _follow(run, backend, follower, state, where.why, console, interrupts)
        backend.clean()
        if result.verdict == "refused" and not state.ranks:
            record.undo_start(run_dir, before)
            raise DeployError(result.message, result.hint, result.code)
        return ending.end(run_dir, _with_local_paths(result, run_dir), state, time.time() - began, console)


def stop_all(console: Console) -> int:
    """`make down`: end every run of this checkout, on any backend; returns how many runs there were."""
    engine, count = client.find_engine(), 0
    for backend in backends.BACKENDS.values():
        for run_id in sorted(backend.running(folders.RUNS, engine)):
            backend.end(folders.RUNS / run_id, console.note)
            count += 1
    console.note("nothing was running" if not count else "down: nothing of this checkout's runs is left running")
    return count


def list_all(console: Console) -> None:
    """`make runs`."""
    console.runs(record.listing(folders.RUNS, backends.running(folders.RUNS, client.find_engine())))


def _follow(
    run: environment.RunSpec,
    backend: Backend,
    follower: follow.Follower,
    state: State,
    why: str,
    console: Console,
    interrupts: Interrupts,
) -> Result:
    try:
        with console.following(state, environment.recipe_name(run.arguments), why) as tell:
            result = follow.follow(backend, follower, state, tell, interrupts.requests)
    except EngineLost as fault:
        # Containers may have outlived their engine's pause: a resume beside them would be two runs in one folder.
        hint = f"once Docker is back: `{MAKE} down`, then `{MAKE} up {option('RESUME', 'latest')}`"
        result = Result("failed", fault.message, hint, step=state.step)
    except DeployError as fault:
        result = Result("failed", fault.message, fault.hint)
    with suppress(DeployError):  # an engine that is gone shows no console
        backend.collect_logs()
    return result


def _with_local_paths(result: Result, run_dir: Path) -> Result:
    """The result with a path that the reader can open: a container calls the run folder /muster/runs/<id>."""
    message = result.message.replace(f"{environment.RUNS_IN_CONTAINER}/{run_dir.name}", str(run_dir))
    return replace(result, message=message.replace(str(run_dir), display_path(run_dir)))


def _take(run_dir: Path, held: ExitStack, engine: EngineFacts) -> None:
    """Hold the run's lock. Raises DeployError, with the run's name, if another command drives it."""
    taken = locks.hold_run(run_dir)
    if taken is None or run_dir.name in backends.running(folders.RUNS, engine):
        if taken:
            taken.release()
        raise DeployError(
            f"{run_dir.name} is still going on",
            f"wait for its end, or `{MAKE} down` first; then `{MAKE} up {option('RESUME', display_path(run_dir))}`",
        )
    held.callback(taken.release)


def _choose_port(held: ExitStack, console: Console) -> int:
    """Choose a port that is free and that no other run has chosen; hold it until this run ends."""
    taken: Collection[int] = observe.busy_ports(
        range(environment.MASTER_PORT, environment.MASTER_PORT + plan.PORTS_TO_TRY)
    )
    while True:
        choice = plan.choose_port(environment.MASTER_PORT, taken)
        claim = locks.hold_port(choice.port)
        if claim:
            held.callback(claim.release)
            if choice.note:
                console.note(choice.note)
            return choice.port
        taken = {*taken, choice.port}


def _split(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError as fault:
        example = option("ARGS", '"--recipe text --steps 100"')
        raise UsageError(f"{option('ARGS', arguments)}: {fault}", f"quote as in a shell: {example}") from fault
