"""The one interface between a run and the place where its nodes run: processes, compose services, containers on hosts.

The code that starts, follows, ends and records a run is the same for all backends. A new backend is a folder with one
class that inherits from Backend; tests/unit/run/memory_backend.py is the smallest example.
"""

from __future__ import annotations

import signal
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from ..core.facts import NodeState
from .events import Event
from .progress import State


class Backend(Protocol):
    """The nodes of one run. The methods are listed in the order in which a run calls them (start.py, follow.py).

    A method that is not abstract has a default, which a backend may keep. `look_s`: seconds between two looks at the
    nodes.
    """

    look_s: float = 0.1

    def lock(self) -> AbstractContextManager[object]:
        """Keep others from starting a run on the same machines until this one has started."""
        return nullcontext()

    def check(self) -> None:
        """Raise DeployError for anything that would keep the nodes from starting. The run is not recorded yet."""
        return

    def prepare(self) -> None:
        """Provide what every node needs, and remove what an earlier start of the run left. Raises DeployError."""
        return

    @abstractmethod
    def start(self) -> None:
        """Start every node. Raises DeployError; `undo` then removes the nodes that have started."""

    def undo(self) -> None:
        """Remove what a failed or interrupted start created. Raises DeployError if something may be left."""
        self.clean()

    @abstractmethod
    def states(self, state: State) -> list[NodeState]:
        """The state of each node. May restart a node that died without a verdict.

        Raises EngineLost if the engine has stopped answering, DeployError if no node was visible for too long.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ask every node to stop. Does not wait."""

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal to every node, which passes it to the ranks of a script."""
        return

    @abstractmethod
    def kill(self) -> None:
        """End every node now. Its console can still be read."""

    def output(self, state: State) -> list[Event]:
        """Return what the ranks have printed since the last call, for the person who watches (output.py)."""
        return []

    def collect_logs(self) -> None:
        """Complete logs/<node>.log with everything on each node's console."""
        return

    @abstractmethod
    def clean(self) -> None:
        """Remove what the run left outside its folder. A second call does nothing."""
