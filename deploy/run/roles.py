"""The nodes of a run of several roles: their worlds (`separate`: one for each node), ranks, and what each knows. Pure.

A role is planned like a separate run: its nodes have torchrun's variables among themselves, so a trainer next to
servers behaves as it does alone. This module only combines such plans into one run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..core.errors import UsageError
from ..job import script as typed
from ..job.inventory import Host
from ..job.load import read_text
from ..job.options import FLAG, Options
from ..job.roles.all_roles import cast, first_of
from ..job.roles.role import ANY_PORT, NO_SIGN, Role, how_ready
from ..job.values import wait
from . import environment
from .environment import NodeSpec, RunSpec

ROLES = "MUSTER_ROLES"
# What a pod knows about itself (trainer/node/agent/pods.py), and the run's key, which is in a Secret of the cluster.
ROLE, ROLE_INDEX, POD_KEY = "MUSTER_ROLE", "MUSTER_ROLE_INDEX", "MUSTER_ROLES_KEY"
NodePorts = tuple[str, int, int]


@dataclass(frozen=True)
class PlannedRole:
    """A role, or one of its worlds (`worlds`), with its parsed command. `processes`: the ranks on each of its nodes."""

    role: Role
    words: tuple[str, ...]
    processes: Literal["auto"] | int
    restarts: int
    bare: bool

    def ranks_on(self, gpus: int) -> int:
        """How many ranks a node with `gpus` GPUs has: as asked, or one for each GPU."""
        return max(1, gpus) if self.processes == "auto" else self.processes

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the role's nodes, if they are not named after hosts."""
        name, count = self.role.name, self.role.nodes
        return (name,) if count == 1 else tuple(f"{name}-{index}" for index in range(count))


class NodeAddress(NamedTuple):
    """How other nodes reach a node: its name, its address, its port for their questions; and its number of GPUs."""

    name: str
    address: str
    port: int
    gpus: int


def read(options: Options, hosts: Sequence[str], ranks: Literal["auto"] | int = "auto") -> tuple[PlannedRole, ...]:
    """The roles in the order in which they start; none if the run has one command. Raises UsageError.

    `ranks`: the ranks on each node, from cluster.toml; they apply to the first role that ends the run.
    """
    if not options.role:
        return ()
    roles, folder = cast(options.role, hosts), Path(options.folder or ".")
    first, planned = first_of(roles), []
    for role in roles:
        command = typed.read(role.command, folder, f"{FLAG.role} {role.name}")
        beside = options if role is first else Options()
        asked = command.asked_ranks(role.processes or beside.nproc) or str(ranks) * (role is first and ranks != "auto")
        # By default a program starts once for each GPU, but only one program can have the role's port.
        processes = read_text("nproc", asked or ("1" if command.python and role.port else "auto"))
        restarts = role.restart or command.restarts or int(beside.restarts or 0)
        planned.append(PlannedRole(role, command.words, processes, restarts, command.bare and not asked))
    return tuple(planned)


@contextmanager
def named(role: str) -> Iterator[None]:
    """Add the role's name to a UsageError about the role's command."""
    try:
        yield
    except UsageError as fault:
        raise UsageError(f"role {role}: {fault.message}", fault.hint) from fault


def with_ports(planned: Sequence[PlannedRole], free: Iterator[int]) -> tuple[PlannedRole, ...]:
    """The roles, with free ports for those that accept any port."""
    return tuple(
        replace(each, role=replace(each.role, port=next(free))) if each.role.port == ANY_PORT else each
        for each in planned
    )


def worlds(planned: Sequence[PlannedRole]) -> Iterator[PlannedRole]:
    """The worlds of all roles (nodes that train together), in the order in which they start.

    A world is a whole role, or one node of a role whose nodes are separate.
    """
    for each in planned:
        role, size = each.role, 1 if each.role.separate else each.role.nodes
        for first in range(0, role.nodes, size):
            yield replace(each, role=replace(role, nodes=size, hosts=role.hosts[first : first + size]))


def with_gpus(hosts: Sequence[Host], planned: Sequence[PlannedRole]) -> tuple[Host, ...]:
    """The hosts, each with as many GPUs as its role asks for: the first ones, if the host lists its GPUs."""
    asked = {name: each.role.gpus for each in planned for name in each.role.hosts}
    return tuple(
        replace(host, gpus=(host.gpus[:count] or 0) if isinstance(host.gpus, tuple) else count)
        if (count := asked.get(host.name, -1)) >= 0
        else host
        for host in hosts
    )


def on_this_machine(
    planned: Sequence[PlannedRole],
    ports: Sequence[NodePorts],
    shares: Sequence[range],
    key: str,
    make: Callable[[PlannedRole, int, int], RunSpec],
) -> tuple[NodeSpec, ...]:
    """All nodes of a run on this machine. For each node, `ports` has its address and two ports, `shares` its GPUs.

    `make` plans one world, given its rendezvous port and the number of ranks on each of its nodes.
    """
    names = [name for each in planned for name in each.nodes]
    addresses = [
        NodeAddress(name, *door[:2], len(share)) for name, door, share in zip(names, ports, shares, strict=True)
    ]
    known, nodes = variables(planned, addresses, key, shared=True), list[NodeSpec]()
    for world in worlds(planned):
        spec = make(world, ports[len(nodes)][2], world.ranks_on(addresses[len(nodes)].gpus))
        for node in spec.nodes:
            name = names[len(nodes)]
            given = {**node.environment, **known, environment.NODE: name}
            nodes.append(NodeSpec(name, len(nodes), given, spec.arguments, world.restarts, world.role.name))
    return tuple(nodes)


def variables(
    planned: Sequence[PlannedRole], addresses: Sequence[NodeAddress], key: str, shared: bool = False, within: int = 0
) -> dict[str, str]:
    """The variable that tells every node about all roles (docs/develop/contract.md).

    `addresses`: all nodes, in the roles' order. `shared`: all nodes are on one machine, where the nodes of a role
    cannot have the same port. `within`: how many seconds a node may take until it answers for the first time.
    """
    rest, rows, first_rank = iter(addresses), dict[str, Any](), 0
    own = {each.role.name: tuple(islice(rest, each.role.nodes)) for each in planned}
    main = first_of([each.role for each in planned])
    for each in sorted(planned, key=lambda each: each.role is not main):
        role, begins, nodes = each.role, first_rank, dict[str, Any]()
        for index, node in enumerate(own[role.name]):
            service = role.port and role.port + index * shared
            own_first = first_rank if role.separate else begins
            nodes[node.name] = (node.address, node.port, service, own_first, node.gpus)
            first_rank += each.ranks_on(node.gpus)
        about = {"name": role.name, "ends": role.ends, "after": role.after, "ready": how_ready(role.ready) or NO_SIGN}
        rows[role.name] = {**about, "within": wait(role.within), "nodes": nodes}
    return {ROLES: json.dumps({"key": key, "within": within, "roles": [rows[each.role.name] for each in planned]})}


def by_node(run: RunSpec) -> dict[str, str]:
    """The role of each node, by the node's name; empty if the run has one command."""
    return {node.name: node.role for node in run.nodes if node.role}
