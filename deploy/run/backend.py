"""The one seam between a run and what its nodes live on: processes, compose services, containers on hosts.

Everything above it (how a run is started, followed, ended and recorded) is the same for all. A new backend is a folder
with one class that inherits from Backend; tests/unit/run/memory_backend.py is the smallest.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from ..core.facts import NodeState
from .events import Event
from .progress import State


class Backend(Protocol):
    """The nodes of one run, its verbs in the order in which a run needs them (launch.py, follow.py).

    A verb without the abstract mark has a default: a backend that needs no more leaves it out.
    """

    def lock(self) -> AbstractContextManager[object]:
        """Keep others from starting a run on the same machines until this one has started."""
        return nullcontext()

    def check(self) -> None:
        """Refuse what would keep the nodes from starting. Nothing of the run is recorded yet. Raises DeployError."""
        return

    def prepare(self) -> None:
        """Bring what every node needs, and clear what an earlier start of the run left. Raises DeployError."""
        return

    @abstractmethod
    def start(self) -> None:
        """Bring every node to life. Raises DeployError; `undo` then takes back what has started."""

    def undo(self) -> None:
        """Take back what a failed or interrupted start made. Raises DeployError where something may be left."""
        self.clean()

    @abstractmethod
    def states(self, state: State) -> list[NodeState]:
        """How each node stands. May start a node again that died without a verdict.

        Raises EngineLost when the backend itself is gone, DeployError when it has been out of sight for too long.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ask every node to stop; returns at once."""

    @abstractmethod
    def kill(self) -> None:
        """End every node now. What it said can still be read."""

    def output(self, state: State) -> list[Event]:
        """What the ranks have printed since the last call, for whoever watches (output.py)."""
        return []

    def collect_logs(self) -> None:
        """See that logs/<node>.log has all that each node's console said."""
        return

    @abstractmethod
    def clean(self) -> None:
        """Remove what the run left outside its folder. Calling it again does nothing."""
