"""When a role starts, stops, is killed or counts as lost, when the run is over, and how a program finds others. Pure.

The input is the plan, what each node reports, and the time; the output is a decision. Each node decides for itself, so
a run does not need a command that follows it. Nodes tell each other their phases; once one node has seen that the run
is over, all others learn it from that node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..membership.meeting import endpoint

# The phase of a role's node: it waits for others; its program runs; others may use it; it has ended for good,
# successfully or not.
WAITS, RUNS, READY, ENDED, BROKE = "waits", "runs", "ready", "ended", "broke"
_ENDS = (ENDED, BROKE)
# How a run ended: with the role that ends it, or because another role broke or is lost.
AS_PLANNED, TOO_EARLY = "as planned", "too early"
# After the role that ends the run has ended, each of the other roles has this long, one after the other.
HELPER_S = 1.5
# After another role has failed, a training role may save its state; the roles before it in the order wait for that.
SAVES_S = 25.0
# A node that no other node reaches for this long is gone: its host has had the time to restart it.
LOST_S = 60.0


class Node(NamedTuple):
    """How other nodes reach a node: its address, the port for questions, and the port of its service (or 0).

    `first_rank`: the offset of its ranks' numbers. `gpus`: the number of its GPUs.
    """

    address: str
    port: int
    service: int = 0
    first_rank: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class Role:
    """One role, with its nodes by name.

    `ends`: the run ends with it. `after`: the roles that have to be ready first. `ready`: how it shows that it is
    ready, in the format of docs/develop/contract.md, within `within` seconds.
    """

    name: str
    nodes: Mapping[str, Node]
    ends: bool
    after: Sequence[str]
    ready: Sequence[Any]
    within: float

    @property
    def grace(self) -> float:
        """How many seconds its program has to end once the run is over: a training program may save its state."""
        return SAVES_S if self.ends else HELPER_S


@dataclass(frozen=True)
class View:
    """A node's last reported phase, how it believes the run ended, and when it was last `seen`."""

    phase: str = WAITS
    over: str = ""
    seen: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The roles of a run in their start order, and the key with which its nodes authenticate each other.

    `within`: how many seconds a node may take until its first answer.
    """

    roles: tuple[Role, ...]
    key: str = field(repr=False, default="")
    within: float = 0.0

    def role_of(self, node: str) -> Role:
        """The role of a node."""
        return next(role for role in self.roles if node in role.nodes)

    def over(self, views: Mapping[str, View], now: float) -> str:
        """How the run ended, according to the nodes; empty while it has not ended."""
        if heard := next((view.over for view in views.values() if view.over), ""):
            return heard
        last = [role for role in self.roles if role.ends]
        phases = {views[node].phase for role in last or self.roles for node in role.nodes}
        if phases == {ENDED} or (last and BROKE in phases):
            return AS_PLANNED
        going = [view for view in views.values() if view.phase != ENDED]
        return TOO_EARLY if any(view.phase == BROKE or now - view.seen > LOST_S for view in going) else ""

    def waits_for(self, role: Role, views: Mapping[str, View]) -> list[str]:
        """The nodes that must become ready before a role can start."""
        before = [node for other in self.roles if other.name in role.after for node in other.nodes]
        return [node for node in before if views[node].phase not in (READY, ENDED)]

    def may_stop(self, role: Role, views: Mapping[str, View], waited: float, over: str) -> bool:
        """Whether it is a role's turn to stop, `waited` seconds after the run was over or was asked to stop.

        The role that started last stops first: then the roles that it uses still answer while it ends.
        """
        later = [node for other in self.roles[self.roles.index(role) + 1 :] for node in other.nodes]
        patience = HELPER_S if over == AS_PLANNED else SAVES_S
        return waited >= patience or all(views[node].phase in _ENDS for node in later)

    def variables(self, node: str) -> dict[str, str]:
        """The variables about the roles for a node's programs (docs/reference/variables.md)."""
        own = self.role_of(node)
        mine = own.nodes[node]
        made = {
            "MUSTER_ROLE": own.name,
            "MUSTER_ROLE_INDEX": str(list(own.nodes).index(node)),
            "MUSTER_ROLE_HOST": mine.address,
            "MUSTER_ROLE_GPUS": str(mine.gpus),
            "MUSTER_FIRST_RANK": str(mine.first_rank),
        }
        if own is not max(self.roles, key=lambda role: role.ends):
            made["MUSTER_RESTART_WITH"] = ""  # --restart-with applies only to the run's own command
        if mine.service:
            made["MUSTER_ROLE_PORT"] = str(mine.service)
        for role in self.roles:
            name = f"MUSTER_{role.name.upper().replace('-', '_')}"
            made[f"{name}_HOSTS"] = ",".join(each.address for each in role.nodes.values())
            if serving := [each for each in role.nodes.values() if each.service]:
                made[f"{name}_PORT"] = str(serving[0].service)
                made[f"{name}_ADDRESSES"] = ",".join(endpoint(each.address, each.service) for each in serving)
        return made


def read(text: str) -> Plan:
    """The plan in MUSTER_ROLES. Raises ValueError, KeyError or TypeError for other text."""
    given = json.loads(text)
    for row in given["roles"]:
        row["nodes"] = {name: Node(*about) for name, about in row["nodes"].items()}
    return Plan(tuple(Role(**row) for row in given["roles"]), given["key"], given.get("within", 0.0))


def view_of(row: Mapping[str, Any], before: View, seen: float) -> View:
    """Another node's state, from its report and its state `before`; a malformed report changes nothing.

    An end is final: an answer that was still on its way is older.
    """
    phase, over = row.get("phase"), row.get("over")
    if phase not in (WAITS, RUNS, READY, *_ENDS) or over not in ("", AS_PLANNED, TOO_EARLY):
        return before
    return View(before.phase if before.phase in _ENDS else phase, before.over or over, seen)
