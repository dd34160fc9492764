"""`fab drill`: harmless faults against a run of our own on the user's hosts, one after the other.

The run is an ordinary deploy of Muster's trainer. Our console hears what its follower tells, and run/drill.py judges.
Nothing of the drill stays on the hosts, however it ends: a pause ends there by itself, and so does the run.
"""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..core.errors import DONE, FAILED, DeployError
from ..core.names import RunId, node_of
from ..core.program import FAB
from ..core.text import duration, in_seconds
from ..door.session import Session, on_all, open_all
from ..host import audit, commands
from ..host.facts import Container
from ..job.load import load_cluster
from ..job.options import Options
from ..report.console import Console
from ..report.interrupts import Interrupts
from ..report.script_lines import RANK_0, ShownRanks
from ..run import drill as judge
from ..run import record
from ..run.drill import Fault, Trial
from ..run.events import Event
from ..run.folders import display_path
from ..run.outcome import Result
from ..run.progress import State
from . import delete, deploy, nodes, observe
from .container import container_name

# Of an ordinary run, but without an end: the drill ends it, and the nodes themselves do where the drill cannot.
_STEPS, _MAX_HOURS, _WAIT_LOST = "--steps 100000000 --checkpoint-every 200 --eval-every 0 --keep 1", "0.5", "3m"
_ACT_S = 30.0


def drill(options: Options, console: Console) -> int:
    """Run the drill; returns 0 if training went on after each fault. Raises DeployError, before the start or after it.

    `options`: hosts, image and GPUs; with `dry_run` it prints the commands and changes nothing.
    """
    run = RunId(f"drill-{secrets.token_hex(4)}")
    own = Options(options.hosts, options.cluster, run, args=_STEPS, image=options.image, gpus=options.gpus)
    own = replace(own, max_hours=_MAX_HOURS, wait_lost=_WAIT_LOST, dry_run=options.dry_run)
    hosts = [host.name for host in load_cluster(own).hosts]
    planned = judge.assign(hosts)
    if options.dry_run:
        deploy.deploy(own, console, own=True)
        for fault, host in planned:
            argv = _command(fault, container_name("RUN"), pid=None)
            console.text(f"{host}: {fault.name}\n    {shlex.join(argv)}")
            console.data({"kind": "step", "host": host, "text": fault.name, "argv": list(argv)})
        return DONE
    with (
        Interrupts(console, "looking at the hosts", "nothing was changed") as interrupts,
        open_all(load_cluster(own).hosts) as opened,
    ):
        sessions = opened.all()
        refuse_busy(observe.containers(sessions.values()).all())
        interrupts.hold()
        interrupts.at("")  # a deploy says itself where it was stopped
        scene = _Scene(run, sessions, planned, console)
        ear = _Ear(console.as_json, scene)
        try:
            deploy.deploy(own, ear, own=True)
        finally:
            if ear.started:
                _remove(own, run, sessions, scene.broken, console)
        if not scene.over and not scene.end:
            raise KeyboardInterrupt("stopped: nothing of the drill is left on the hosts")
    return _show(scene, planned, console)


def refuse_busy(containers: Mapping[str, Sequence[Container]]) -> None:
    """Raise DeployError if a run of anybody is on one of the hosts: a drill slows it down, and it would slow ours."""
    for host, on_host in containers.items():
        for container in on_host:
            if container.code is None:
                whose = "" if container.ours else f" of {container.user or 'another user'}"
                hint = f"wait for its end: {FAB} status --hosts {host}"
                raise DeployError(f"{host}: {container.run}{whose} runs there: no drill was started", hint)


@dataclass
class _Scene:
    """The drill while its run is followed. `over`: it has done what it came for; `end`: the run ended before that."""

    run: RunId
    sessions: Mapping[str, Session]
    planned: Sequence[tuple[Fault, str]]
    console: Console
    over: bool = False
    end: str = ""

    def __post_init__(self) -> None:
        self.trials: list[Trial] = []
        self._began, self._at = time.monotonic(), 0.0
        self._running = False

    @property
    def broken(self) -> bool:
        """Whether the run did not survive something, so that somebody may want to read what its ranks printed."""
        return bool(self.end) or (self.over and not judge.passed(self.trials))

    def hear(self, state: State, events: Sequence[Event]) -> None:
        """Take what the follower tells, several times a second; begin, undo and end the faults. Raises DeployError."""
        now = time.monotonic()
        if not self._running:
            if len(self.trials) == len(self.planned):
                self.over = True
            elif judge.ready(state):
                self._begin(state)
            elif now - self._began > judge.BEGIN_S:
                self.over, self.end = True, f"its ranks did not all train within {in_seconds(judge.BEGIN_S)}"
            return
        trial, after = self.trials[-1], now - self._at
        trial = judge.heard(trial, after, state.story, events)
        if trial.fault.pauses and not trial.again and after >= judge.PAUSE_S:
            # Where this fails the host does it, a little later.
            self.sessions[trial.host].run(commands.unpause(container_name(self.run)), timeout_s=_ACT_S, check=False)
            trial = judge.undone(trial, state)
        self.trials[-1] = trial
        if trial.over(after):
            self._running, self._began = False, now
            back = "it did not go on"
            if trial.back_s is not None:
                back = f"training went on after {duration(trial.back_s)}"
            self.console.note(f"{trial.host}: {trial.report or 'nothing was said'}; {back}")
            self.over = not trial.back

    def ended(self, message: str) -> None:
        """The run has ended without being asked to."""
        self.end = message or "the run ended"
        if self._running:
            self.trials[-1] = replace(self.trials[-1], end=self.end)

    def _begin(self, state: State) -> None:
        fault, host = self.planned[len(self.trials)]
        view = state.rank_of(node := node_of(host))
        if view is None or view.pid < 2:
            raise DeployError(f"{host}: no rank of the drill's run says which process it is", f"{FAB} preflight")
        self.console.note(f"{host}: now {fault.name}")
        self.trials.append(Trial(fault, host, node, view.rank, len(state.story)))
        self._at, self._running = time.monotonic(), True
        self._make(fault, host, view.pid)

    def _make(self, fault: Fault, host: str, pid: int) -> None:
        argv = _command(fault, container_name(self.run), pid)
        done = self.sessions[host].run(argv, timeout_s=_ACT_S, check=False)
        # A node that ends with its agent ends our command, too: what it printed before says that it did it.
        if done.code and "killed" not in done.out.split():
            why = (done.err.strip() or f"code {done.code}").splitlines()[-1]
            raise DeployError(f"{host}: the fault could not be made: {why}", "does its Docker engine answer? docker ps")
        audit.note(self.sessions[host], f"{self.run} drill: {fault.name}")


class _Ear(Console):
    """The console of the drill's deploy. Once its run is followed, the scene hears instead of a person."""

    def __init__(self, as_json: bool, scene: _Scene) -> None:
        super().__init__(as_json)
        self._scene, self.started, self._hears, self._left = scene, False, False, False

    @property
    def gone(self) -> bool:
        """Whether the follower's output has gone: it then leaves the run."""
        return self._left or self._scene.over

    @gone.setter
    def gone(self, value: bool) -> None:
        self._left = value

    @property
    def asks(self) -> bool:
        """Ctrl-C ends the drill without a question."""
        return False

    def data(self, value: dict[str, Any]) -> None:
        """With --json the drill prints its own lines alone."""
        self.started = self.started or value.get("kind") == "started"

    @contextmanager
    def following(
        self, state: State, recipe: str, why: str, ranks: ShownRanks = RANK_0
    ) -> Iterator[Callable[[list[Event]], None]]:
        """Let the scene hear."""
        self._hears = True
        yield partial(self._scene.hear, state)

    def result(
        self, result: Result, state: State, outcome: dict[str, Any], where: str, folder: str, fetch: str = ""
    ) -> None:
        """The run ended by itself."""
        self._scene.ended(result.message)

    def _say(self, text: str, style: str) -> None:
        if not self._hears:
            super()._say(text, style)


def _command(fault: Fault, container: str, pid: int | None) -> tuple[str, ...]:
    """What the host of a fault does. Without a `pid`, as --dry-run shows it."""
    if fault is judge.RANK:
        argv = commands.kill_rank(container, pid or 0)
        return argv if pid else (*argv[:-1], "PID")
    return commands.pause(container, round(judge.GUARD_S)) if fault.pauses else commands.kill_agent(container)


def _remove(own: Options, run: RunId, sessions: Mapping[str, Session], broken: bool, console: Console) -> None:
    """Remove the drill's run from all hosts; its folder here stays where somebody may want to read it."""
    on_all(sessions.values(), lambda host: host.run(commands.unpause(container_name(run)), check=False))
    try:
        nodes.remove(list(sessions.values()), run).all()
        delete.delete(replace(own, run=run), console)
    except DeployError as fault:
        again = f"{FAB} down --hosts {','.join(sessions)} --run {run} --delete"
        raise DeployError(f"{fault.message}\nthe drill's run may still be there", again) from fault
    if broken:
        console.note(f"what its nodes printed is in {display_path(record.path_of(run))}/logs")
    else:
        record.undo_start(record.path_of(run), {})


def _show(scene: _Scene, planned: Sequence[tuple[Fault, str]], console: Console) -> int:
    code = DONE if judge.passed(scene.trials) else FAILED
    for trial in scene.trials:
        console.data(trial.values())
    console.data({"kind": "drill", "faults": len(planned), "back": sum(trial.back for trial in scene.trials)})
    if not console.as_json:
        console.table(judge.HEAD, judge.rows(scene.trials, planned))
    if scene.end:
        console.warn(f"the drill's run: {scene.end}")
    return code
