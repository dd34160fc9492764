"""When a role starts, when it stops, and when a run of several roles is over. Pure: the plan, what each node says, and
the time in; a decision out.

Each node decides for itself, so a run needs nobody who follows it. Nodes tell each other what they are at; once one has
seen that the run is over, all of them learn that from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from muster.errors import DONE, FAILED, STOPPED

# What a node of a role is at: it waits for others; its program runs; others may use it; it has ended for good.
WAITS, RUNS, READY, ENDED = "waits", "runs", "ready", "ended"
# Once the role that ends the run has ended, each of the others has so long, one after the other.
HELPER_S = 1.5
# Once another role has failed, one that trains may save what it has; those before it in the order wait for that.
SAVES_S = 25.0
# A node that nobody reaches for so long is gone: its host has had the time to start it again.
LOST_S = 60.0
_WHY_MOST, _CODES = 300, (DONE, FAILED, STOPPED)


@dataclass(frozen=True)
class Role:
    """One role: its nodes by name, each with its address, the port for questions and the port of its service (or 0).

    `ends`: the run ends with it. `after`: the roles that have to be ready first. `ready`: how it shows that it is, in
    the words of docs/contract.md, within `within` seconds.
    """

    name: str
    nodes: Mapping[str, tuple[str, int, int]]
    ends: bool = False
    after: tuple[str, ...] = ()
    ready: str = ""
    within: float = 600.0


@dataclass(frozen=True)
class Over:
    """The run is over: by this role on this node (empty: all have ended), with this code.

    `by_end`: its own end, as planned; else a failure, or a stop.
    """

    role: str = ""
    node: str = ""
    code: int = DONE
    why: str = ""
    by_end: bool = True


@dataclass(frozen=True)
class View:
    """What a node has said of itself last, and when it was `seen` last (monotonic seconds)."""

    phase: str = WAITS
    code: int = DONE
    why: str = ""
    over: Over | None = None
    seen: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The roles of a run in the order in which they start, and the key that its nodes prove to each other.

    `within`: so many seconds a node may take to answer for the first time.
    """

    roles: tuple[Role, ...]
    key: str = field(repr=False, default="")
    within: float = 0.0

    def role_of(self, node: str) -> Role:
        """The role of a node."""
        return next(role for role in self.roles if node in role.nodes)

    def over(self, views: Mapping[str, View], now: float) -> Over | None:
        """Whether the run is over, as far as the nodes say."""
        for node, view in views.items():
            if view.over:
                return view.over
            if view.phase == ENDED and view.code != DONE:
                role = self.role_of(node)
                return Over(role.name, node, view.code, view.why, role.ends)
        for role in self.roles:
            if role.ends and all(views[node].phase == ENDED for node in role.nodes):
                return Over(role.name, next(iter(role.nodes)))
        if all(view.phase == ENDED for view in views.values()):
            return Over()
        lost = next((node for node, view in views.items() if view.phase != ENDED and now - view.seen > LOST_S), "")
        why = f"{lost} has not answered for {LOST_S:.0f} s"
        return Over(self.role_of(lost).name, lost, FAILED, why, by_end=False) if lost else None

    def waits_for(self, role: Role, views: Mapping[str, View]) -> list[str]:
        """The nodes that are not ready for a role to start."""
        before = [other for other in self.roles if other.name in role.after]
        return [node for other in before for node in other.nodes if not _is_ready(views[node])]

    def may_stop(self, role: Role, views: Mapping[str, View], waited: float, over: Over | None) -> bool:
        """Whether it is a role's turn to stop, `waited` seconds after the run was over, or was asked to stop.

        The last to start stops first: those that it uses still answer while it ends.
        """
        at = self.roles.index(role)
        later = [node for other in self.roles[at + 1 :] for node in other.nodes]
        patience = HELPER_S if over and over.by_end else SAVES_S
        return waited >= patience * bool(later) or all(views[node].phase == ENDED for node in later)

    def grace(self, role: Role, over: Over) -> float:
        """How many seconds a role's program has to end once it is asked."""
        return HELPER_S if over.by_end or not role.ends else SAVES_S


def _is_ready(view: View) -> bool:
    return view.phase == READY or (view.phase == ENDED and view.code == DONE)


def read(text: str) -> Plan:
    """The plan in MUSTER_ROLES. Raises ValueError, KeyError or TypeError for other text."""
    given = json.loads(text)
    roles = []
    for row in given["roles"]:
        nodes = {
            str(name): (str(address), int(port), int(service))
            for name, (address, port, service) in row["nodes"].items()
        }
        after = tuple(map(str, row["after"]))
        about = bool(row["ends"]), after, str(row["ready"]), float(row["within"])
        roles.append(Role(str(row["name"]), nodes, *about))
    return Plan(tuple(roles), str(given["key"]), float(given.get("within", 0.0)))


def row_of(view: View) -> dict[str, Any]:
    """What a node says of itself."""
    row = asdict(view)
    del row["seen"]
    return row


def view_of(row: Mapping[str, Any], seen: float, nodes: Mapping[str, View]) -> View | None:
    """What another node says of itself; None where it is no such thing. `nodes`: whom it may speak of."""
    phase, code, row_over = row.get("phase"), row.get("code"), row.get("over")
    if phase not in (WAITS, RUNS, READY, ENDED) or not isinstance(code, int) or code not in _CODES:
        return None
    over = None
    if isinstance(row_over, dict) and row_over.get("node") in (*nodes, "") and row_over.get("code") in _CODES:
        role, who, why = (_plain(row_over.get(name)) for name in ("role", "node", "why"))
        over = Over(role, who, int(row_over["code"]), why, row_over.get("by_end") is True)
    return View(phase, code, _plain(row.get("why")), over, seen)


def _plain(value: object) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return "".join(letter for letter in text if letter.isprintable())[:_WHY_MOST]
