"""The nodes of a run that has several roles: the worlds that they form, and what each node knows of the others. Pure.

A role is planned like a run of its own: its nodes have torchrun's variables among themselves, so a trainer beside
servers is the trainer that it is alone. This module only puts such plans beside each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..job import script as typed
from ..job.inventory import Host
from ..job.options import FLAG, ROWS, Options, flag_of
from ..job.roles.cast import cast, first_of
from ..job.roles.role import ANY_PORT, NO_SIGN, Role, how_ready
from ..job.values import wait
from . import environment
from .environment import NodeSpec, RunSpec

ROLES = "MUSTER_ROLES"
# What a pod knows of itself (trainer/node/agent/pods.py), and the key of the run, in a Secret of the cluster.
ROLE, ROLE_INDEX, POD_KEY = "MUSTER_ROLE", "MUSTER_ROLE_INDEX", "MUSTER_ROLES_KEY"
Door = tuple[str, int, int]


@dataclass(frozen=True)
class Acted:
    """A role and its command as it is read. `ranks`: of each of its nodes, as asked."""

    role: Role
    words: tuple[str, ...]
    ranks: str
    restarts: int
    bare: bool


@dataclass(frozen=True)
class World:
    """Nodes that train together: a whole role, or one node of a role whose nodes are separate. `first`: its index."""

    acted: Acted
    first: int
    nodes: int

    @property
    def hosts(self) -> tuple[str, ...]:
        """Their names; none on this machine."""
        return self.acted.role.hosts[self.first : self.first + self.nodes]

    def own_meeting(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables of a node, which meets those of its world alone."""
        return {**given, "PET_RDZV_ID": f"{given['PET_RDZV_ID']}-{self.acted.role.name}-{self.first}"}


@dataclass(frozen=True)
class Where:
    """A node of a role as the others reach it: its address, its port for questions; how many ranks and GPUs it has."""

    role: str
    name: str
    address: str
    port: int
    ranks: int
    gpus: int = 0


def read(options: Options, hosts: Sequence[str]) -> tuple[Acted, ...]:
    """The roles in the order in which they start; none where the run has one command. Raises UsageError."""
    if not options.role:
        return ()
    refuse_beside(options)
    roles, folder = cast(options.role, hosts), Path(options.folder or ".")
    first, acted = first_of(roles), []
    for role in roles:
        command = typed.read(role.command, folder, f"{FLAG.role} {role.name}")
        asked = command.asked_ranks(role.processes or (options.nproc if role is first else ""))
        # A program that nobody asked to start once for each GPU would do so, and its port is one program's.
        ranks = asked or "1" * (command.python and bool(role.port))
        restarts = role.restart or command.restarts or int((options.restarts if role is first else "") or 0)
        acted.append(Acted(role, command.words, ranks, restarts, command.bare and not asked))
    return tuple(acted)


@contextmanager
def named(role: str) -> Iterator[None]:
    """What is wrong with the command of a role is said with the role's name."""
    try:
        yield
    except UsageError as fault:
        raise UsageError(f"role {role}: {fault.message}", fault.hint) from fault


def refuse_beside(options: Options) -> None:
    """Raise UsageError for an option that a run with roles does not have."""
    for name, row in ROWS.items():
        if options.role and row.roles and getattr(options, name):
            raise UsageError(f"{flag_of(name)}: not in a run of several roles", row.roles)


def with_ports(acted: Sequence[Acted], free: Iterator[int]) -> tuple[Acted, ...]:
    """The roles with free ports for those that take any."""
    return tuple(
        replace(each, role=replace(each.role, port=next(free))) if each.role.port == ANY_PORT else each
        for each in acted
    )


def worlds(acted: Sequence[Acted]) -> Iterator[World]:
    """The worlds of all roles, in the order in which the roles start."""
    for each in acted:
        size = 1 if each.role.separate else each.role.nodes
        yield from (World(each, first, size) for first in range(0, each.role.nodes, size))


def with_gpus(hosts: Sequence[Host], acted: Sequence[Acted]) -> tuple[Host, ...]:
    """The hosts, each with as many GPUs as its role asks for; of GPUs that a host names, the first ones."""
    asked = {name: each.role.gpus for each in acted for name in each.role.hosts}
    return tuple(
        replace(host, gpus=(host.gpus[:count] or 0) if isinstance(host.gpus, tuple) else count)
        if (count := asked.get(host.name, -1)) >= 0
        else host
        for host in hosts
    )


def asked_gpus(acted: Sequence[Acted]) -> list[int]:
    """The GPUs that each node asks for, as `environment.shares` takes them."""
    return [each.role.gpus for each in acted for _ in range(each.role.nodes)]


def ranks_of(given: Mapping[str, str]) -> int:
    """How many ranks a node with these variables has."""
    return int(given.get(environment.LAUNCHER_RANKS) or given["PET_NPROC_PER_NODE"])


def on_this_machine(
    acted: Sequence[Acted], doors: Sequence[Door], gpus: int, key: str, make: Callable[[World, int], RunSpec]
) -> tuple[NodeSpec, ...]:
    """All nodes of a run on this machine, which has so many GPUs. `doors`: for each node its address, and two ports.

    `make`: plans one world that meets on a port.
    """
    nodes, where, own_gpus = list[NodeSpec](), list[Where](), environment.shares(asked_gpus(acted), gpus)
    for world in worlds(acted):
        role, spec = world.acted.role, make(world, doors[len(nodes)][2])
        for index, node in enumerate(spec.nodes, world.first):
            place, name = len(nodes), role.name if role.nodes == 1 else f"{role.name}-{index}"
            address, port, _ = doors[place]
            where.append(Where(role.name, name, address, port, ranks_of(node.environment), len(own_gpus[place])))
            given = {**world.own_meeting(node.environment), environment.NODE: name}
            nodes.append(NodeSpec(name, place, given, spec.arguments, world.acted.restarts, role.name))
    known = variables(acted, where, key, shared=True)
    return tuple(replace(node, environment={**node.environment, **known}) for node in nodes)


def variables(
    acted: Sequence[Acted], where: Sequence[Where], key: str, shared: bool = False, within: int = 0
) -> dict[str, str]:
    """What every node is told of all roles (docs/develop/contract.md).

    `shared`: on one machine, where the nodes of a role cannot have the same port. `within`: what a node may take, in
    seconds, until it answers for the first time.
    """
    rows, first_rank = dict[str, dict[str, Any]](), 0
    roles = [each.role for each in acted]
    main = first_of(roles)
    for role in sorted(roles, key=lambda role: role is not main):
        begins, nodes = first_rank, dict[str, tuple[str, int, int, int, int]]()
        for index, node in enumerate(node for node in where if node.role == role.name):
            service = role.port + index * shared if role.port else 0
            own_first = first_rank if role.separate else begins
            nodes[node.name] = (node.address, node.port, service, own_first, node.gpus)
            first_rank += node.ranks
        about = {"name": role.name, "ends": role.ends, "after": role.after, "ready": how_ready(role.ready) or NO_SIGN}
        rows[role.name] = {**about, "within": wait(role.within), "nodes": nodes}
    plan = {"key": key, "within": within, "roles": [rows[role.name] for role in roles]}
    return {ROLES: json.dumps(plan)}


def by_node(run: RunSpec) -> dict[str, str]:
    """The role of each node, by its name; empty where the run has one command."""
    return {node.name: node.role for node in run.nodes if node.role}
