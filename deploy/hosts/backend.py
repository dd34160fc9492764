"""The backend of real hosts: one container a host, over SSH. The run does not need this process once it has started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.facts import NodeState
from ..core.names import NodeName
from ..door.session import Session
from ..job.again import command_of
from ..job.inventory import Host
from ..job.options import FLAG
from ..run.backend import Backend
from ..run.events import Event
from ..run.progress import WAIT_LOST_S, State
from . import nodes
from .watch import HostsWatch


@dataclass(frozen=True)
class RunHandle:
    """What this process knows of a run on real hosts. `nodes` by host; `command`: the script, or the trainer's options.

    `resumed`: the run's folder holds earlier starts; what is older than `since` belongs to these. `secrets`: as
    secrets.Handover takes them. `wait_lost_s`: how long the run waits for a host that is lost (--wait-lost). `least`:
    so many nodes train on without the others (--min-nodes); 0: all are needed. `away`: hosts that did not answer.
    """

    run_dir: Path
    nodes: Mapping[str, NodeName]
    script: bool
    command: Sequence[str]
    resumed: bool = False
    secrets: Callable[[], Mapping[str, str]] | None = None
    since: float = 0.0
    wait_lost_s: float = WAIT_LOST_S
    least: int = 0
    away: Sequence[Host] = ()


class HostsBackend(Backend):
    """The nodes of one run on real hosts. Every command follows them through this class; new_run.py starts them.

    `say` prints a warning.
    """

    def __init__(self, sessions: Sequence[Session], run: RunHandle, say: Callable[[str], None]) -> None:
        self.run = run
        self._opened, self._say, self._id = sessions, say, run.run_dir.name
        self._watch: HostsWatch | None = None

    @property
    def sessions(self) -> Sequence[Session]:
        """The current sessions to the hosts that answer."""
        return self._watch.sessions if self._watch else self._opened

    @property
    def out_of_sight(self) -> Sequence[str]:
        """Hosts that do not answer, or whose engine does not answer."""
        return self._watch.out_of_sight if self._watch else ()

    def start(self) -> None:
        """Does nothing: another command has started the nodes."""
        return

    def states(self, state: State) -> list[NodeState]:
        """The state of each node, as its host last reported it. Raises DeployError if no host answers for too long."""
        if self._watch is None:
            run = self.run
            self._watch = HostsWatch(self._opened, run.nodes, run.run_dir, run.script, self._say, run.secrets, run.away)
        return self._watch.states(state)

    def output(self, state: State) -> list[Event]:
        """The lines of the nodes' consoles."""
        return self._watch.lines.take(state.ranks.began) if self._watch else []

    def stop(self) -> None:
        """Ask every node to stop with SIGINT. An engine that shuts down sends SIGTERM (docs/contract.md)."""
        self._signal("SIGINT")

    def kill(self) -> None:
        """Send SIGKILL to every node."""
        self._signal("SIGKILL")

    def clean(self) -> None:
        """Remove the run's containers; run folders stay. Warns about each host that may still have a container."""
        for words in self.remove():
            self._say(words)

    def remove(self) -> list[str]:
        """Remove the run's containers; returns a warning for each host that may still have one."""
        faults = nodes.remove(self.sessions, self._id).faults
        then = f"{FLAG.run} {self._id}"
        return [
            *(
                f"{host}: {fault.message}; clean up with: {command_of('down', hosts=host)} {then}"
                for host, fault in faults.items()
            ),
            *(
                f"{host}: does not answer; when it is back: {command_of('down', hosts=host)} {then}"
                for host in self.out_of_sight
            ),
        ]

    def close(self) -> None:
        """Stop following. The run continues."""
        if self._watch:
            self._watch.close()

    def _signal(self, name: str) -> None:
        for host, fault in nodes.signal(self.sessions, self._id, name).faults.items():
            self._say(f"{host}: {name} did not reach it: {fault.message}")
