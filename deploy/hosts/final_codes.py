"""The code with which each node ended the run, even if its engine starts it again afterwards."""

from __future__ import annotations

from dataclasses import replace

from ..core.facts import NodeState


class FinalCodes:
    """Takes each node's state, look after look, and keeps the first code of each that belongs to the run's end."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._restarts: dict[str, int] = {}

    def before_the_end(self, node: NodeState) -> None:
        """Take a state while no rank has given a verdict."""
        self._restarts[node.node] = node.restarts

    def at_the_end(self, node: NodeState) -> NodeState:
        """The state once a rank has given a verdict: a node that has ended since then stays ended.

        A node that runs has the code of its life before. That life ended with the run only if the engine has started
        the node since the last look before the verdict.
        """
        ended = node.state != "running" or node.restarts > self._restarts.get(node.node, -1)
        if node.code is not None and ended:
            self._codes.setdefault(node.node, node.code)
        code = self._codes.get(node.node)
        return node if code is None else replace(node, state="exited", code=code)
