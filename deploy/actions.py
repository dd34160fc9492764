"""Perform a plan on either ground, behind one small face: start, look, stop, kill, collect logs. Decides nothing."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from deploy import commands, processes
from deploy.ending import may_restart
from deploy.errors import DeployError
from deploy.facts import NodeState
from deploy.progress import State
from deploy.spec import RunSpec

STOP_PATIENCE_S = 30.0


class Ground(Protocol):
    """Where nodes live. `states` may start a node again that died without a verdict."""

    def start(self) -> None:
        """Bring every node to life. Raises DeployError; then nothing is left running."""

    def states(self, state: State) -> list[NodeState]:
        """How each node stands. Raises EngineLost when the ground itself is gone."""

    def stop(self) -> None:
        """Ask every node to stop; returns at once."""

    def kill(self) -> None:
        """End every node and what it started; nothing of the run is left. Calling it again does nothing."""

    def collect_logs(self) -> None:
        """See that logs/<node>.log has all that each node's console said."""


class ProcessGround:
    """Nodes as `trainer.agent` processes of this machine."""

    def __init__(self, spec: RunSpec, home: Path) -> None:
        self._spec, self._stopping = spec, False
        self._nodes = processes.LocalNodes(spec.run_id, commands.agent(sys.executable, spec.arguments), home)

    def start(self) -> None:
        """Start the master first: the others look for it."""
        try:
            for node in self._spec.nodes:
                self._nodes.start(node, self._spec.run_dir / "logs" / f"{node.name}.log")
        except DeployError:
            self.kill()
            raise

    def states(self, state: State) -> list[NodeState]:
        """How each node stands; one that died without a verdict is started again (at most three times)."""
        return self._nodes.states(lambda node: may_restart(node, state.verdicts, self._stopping))

    def stop(self) -> None:
        """SIGTERM to every agent."""
        self._stopping = True
        self._nodes.signal_all(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to every process that carries the run's id."""
        self._stopping = True
        self._nodes.end()

    def collect_logs(self) -> None:
        """Nothing to do: the processes write into their log files."""


def build_image(home: Path, say: Callable[[str], None]) -> None:
    """Build the local image. Raises DeployError with the build's own words above it."""
    say("building the image (a few minutes the first time, seconds later)")
    if processes.run(commands.build_image("images/build.sh"), home) != 0:
        hint = "its last lines stand above; or train without it: `make up GROUND=processes`"
        raise DeployError("the image was not built", hint)


def stop_local_runs(runs: Path, say: Callable[[str], None]) -> int:
    """End every local process of the runs in `runs`; returns how many runs there were."""
    alive = processes.runs_alive(runs)
    for run_id, members in sorted(alive.items()):
        say(f"stopping {run_id}: {len(members)} processes")
        if not processes.stop(members, STOP_PATIENCE_S):
            say(f"{run_id}: killed what had not stopped after {STOP_PATIENCE_S:.0f} s")
    return len(alive)
