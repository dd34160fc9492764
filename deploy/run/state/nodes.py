"""What is known about each node of a run, updated with each event. Pure.

The event `node` is the backend's NodeState. A node's agent reports what its machine does, and what a script left there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ...core.facts import NodeState
from ..events import Event, changes_nodes, react

# Clocks that differ by less than this do not change the order of events.
CLOCKS_ALIKE_S = 2.0
_LAGS, _LAGS_SPAN_S = 5, 8.0
# A host that joins later has a name that was not planned. At most this many nodes are recorded.
_MOST_NODES = 1024


@dataclass
class Lag:
    """How much later than a node's own time its reports arrive. `first`: this lag at the start; None until known."""

    first: float | None = None
    recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_LAGS))

    @property
    def now(self) -> float:
        """The smallest recent lag: a report may be late for other reasons, but never early."""
        return min(lag for _, lag in self.recent)

    def take(self, lag: float, now: float) -> None:
        """Record the lag of a report that arrives at `now`. If several arrive together, the last one counts."""
        if self.recent and self.recent[-1][0] == now:
            self.recent.pop()
        self.recent.append((now, lag))
        if self.first is None and len(self.recent) == _LAGS and now - self.recent[0][0] >= _LAGS_SPAN_S:
            self.first = self.now


@dataclass
class Nodes:
    """The nodes of a run, by name. `names`: the planned ones, by place."""

    names: tuple[str, ...] = ()
    # When each node came up and ended, its state according to the backend, and its trouble with the time it began.
    up: dict[str, float] = field(default_factory=dict)
    states: dict[str, NodeState] = field(default_factory=dict)
    exited_at: dict[str, float] = field(default_factory=dict)
    troubles: dict[str, tuple[str, float]] = field(default_factory=dict)
    # When each node's container last started again.
    came_back: dict[str, float] = field(default_factory=dict)
    # The nodes that train now, if they are not all the planned ones.
    members: tuple[str, ...] = ()
    # The node of each address.
    addresses: dict[str, str] = field(default_factory=dict)
    # Each machine's last telemetry and CPU use in percent; which process on it is stopped, since when; its clock's lag.
    telemetry: dict[str, Event] = field(default_factory=dict)
    cpus: dict[str, float] = field(default_factory=dict)
    halted: dict[str, tuple[str, float]] = field(default_factory=dict)
    lags: dict[str, Lag] = field(default_factory=dict)
    # The last event `kept` of each node: what a script left there. And a second node that has the newest checkpoints.
    remains: dict[str, Event] = field(default_factory=dict)
    copied: str = ""
    # How long the nodes wait for ranks that were asked to stop.
    grace_s: float = 0.0

    def align(self, event: Event, now: float) -> float:
        """When an event that arrives at `now` happened, by this machine's clock."""
        node = str(event.get("node", ""))
        known = node in self.names or len(self.lags) < _MOST_NODES
        if event.get("kind") == "telemetry" and event.get("t") and known:
            self.lags.setdefault(node, Lag()).take(now - float(event["t"]), now)
        t, lag = float(event.get("t") or now), self.lags.get(node)
        return t + lag.now if lag and lag.first is not None and abs(lag.now) > CLOCKS_ALIKE_S else t

    def has_restarted(self, event: Event) -> bool:
        """Whether an event `node`, which has not been applied yet, shows that a node has started again."""
        before = self.states.get(event["node"])
        return before is not None and event.get("restarts", 0) > before.restarts

    def node_at(self, address: str) -> str:
        """The node that has an address; the address itself if it is unknown."""
        return self.addresses.get(address, address)

    def apply(self, event: Event, t: float) -> None:
        """Apply an event that happened at `t` by this machine's clock."""
        react(self, event, t)

    def _on_node_up(self, event: Event, t: float) -> None:
        self.up.setdefault(event["node"], float(event["t"]))
        address = event.get("address")
        if isinstance(address, str) and address:
            self.addresses[address] = event["node"]

    def _on_node(self, event: Event, t: float) -> None:
        now, told_at = state_of(event), float(event["t"])
        before, ended_at = self.states.get(now.node), self.exited_at.pop(now.node, told_at)
        if self.has_restarted(event):
            self.came_back[now.node] = t
        if now.state in ("exited", "lost"):
            same = before and now.state == before.state and now.restarts == before.restarts
            self.exited_at[now.node] = ended_at if same else told_at
        self.states[now.node] = now
        if not now.trouble:
            self.troubles.pop(now.node, None)
        elif self.troubles.get(now.node, ("", 0.0))[0] != now.trouble:
            self.troubles[now.node] = now.trouble, t

    def _on_members(self, event: Event, t: float) -> None:
        if changes_nodes(event):
            self.members = tuple(event["members"])

    def _on_links(self, event: Event, t: float) -> None:
        ends = (*(event.get("unanswered") or ()), *(event.get("crowded") or ()))
        self.addresses |= {own: event["node"] for own, peer in ends if own != peer}

    def _on_telemetry(self, event: Event, t: float) -> None:
        node, words = event["node"], event.get("halted", "")
        if node in self.names:
            self.telemetry[node] = event
        elif len(self.cpus) >= _MOST_NODES:
            return
        self.cpus[node] = float(event.get("cpu_percent", 0.0))
        if words:
            self.halted.setdefault(node, (words, t))
        else:
            self.halted.pop(node, None)

    def _on_kept(self, event: Event, t: float) -> None:
        self.remains[event["node"]] = event

    def _on_asked(self, event: Event, t: float) -> None:
        self.grace_s = max(self.grace_s, float(event["grace_s"]))

    def _on_copied(self, event: Event, t: float) -> None:
        self.copied = str(event.get("node", ""))


def state_of(event: Event) -> NodeState:
    """The NodeState in an event `node`."""
    trouble = event.get("trouble", "")
    return NodeState(event["node"], event["state"], event.get("code"), event.get("restarts", 0), trouble)
