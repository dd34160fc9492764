"""The backend of real hosts: one container a host, over SSH. The run does not need this process once it has started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.facts import NodeState
from ..core.names import NodeName
from ..run.backend import Backend
from ..run.events import Event
from ..run.progress import State
from ..ssh.session import Session
from . import nodes
from .watch import HostsWatch


@dataclass(frozen=True)
class RunHandle:
    """A run on real hosts as it is known here. `nodes` by host; `command` is what was asked of it.

    `resumed`: earlier starts are in its folder. `secrets`: as secrets.Handover has them.
    """

    run_dir: Path
    nodes: Mapping[str, NodeName]
    script: bool
    command: Sequence[str]
    resumed: bool = False
    secrets: Callable[[], Mapping[str, str]] | None = None


class HostsBackend(Backend):
    """The nodes of one run on real hosts, as any command follows them; new_run.py starts them. `say` warns."""

    def __init__(self, sessions: Sequence[Session], run: RunHandle, say: Callable[[str], None]) -> None:
        self.run = run
        self._opened, self._say, self._id = sessions, say, run.run_dir.name
        self._watch: HostsWatch | None = None

    @property
    def sessions(self) -> Sequence[Session]:
        """The sessions to hosts in sight, as they are now."""
        return self._watch.sessions if self._watch else self._opened

    @property
    def out_of_sight(self) -> Sequence[str]:
        """Hosts that say nothing, or whose engine does not."""
        return self._watch.out_of_sight if self._watch else ()

    def start(self) -> None:
        """Another command has started them."""
        return

    def states(self, state: State) -> list[NodeState]:
        """How each node stands, as its host told last. Raises DeployError when no host was in sight for too long."""
        if self._watch is None:
            run = self.run
            self._watch = HostsWatch(self._opened, run.nodes, run.run_dir, run.script, self._say, run.secrets)
        return self._watch.states(state)

    def output(self, state: State) -> list[Event]:
        """The lines of the nodes' consoles."""
        return self._watch.lines.take(state.began) if self._watch else []

    def stop(self) -> None:
        """Ask every node to stop; SIGTERM is what an engine that goes down sends (docs/contract.md)."""
        self._signal("SIGINT")

    def kill(self) -> None:
        """SIGKILL to every node."""
        self._signal("SIGKILL")

    def clean(self) -> None:
        """Remove the run's containers; run folders stay. Warns of each host where something may be left."""
        for host, fault in nodes.remove(self.sessions, self._id).faults.items():
            self._say(f"{host}: {fault.message}; clean up with: fab down --hosts {host} --run {self._id}")
        for host in self.out_of_sight:
            self._say(f"{host}: out of sight; once it is back: fab down --hosts {host} --run {self._id}")

    def close(self) -> None:
        """Follow no longer; the run is left alone."""
        if self._watch:
            self._watch.close()

    def _signal(self, name: str) -> None:
        for host, fault in nodes.signal(self.sessions, self._id, name).faults.items():
            self._say(f"{host}: {name} did not reach it: {fault.message}")
