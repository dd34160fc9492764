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

from ..core.errors import UsageError
from ..job import script as typed
from ..job.inventory import Host
from ..job.options import FLAG, Options, flag_of
from ..job.roles.cast import cast, first_of
from ..job.roles.role import ANY_PORT, Role
from ..job.values import Gpus
from . import environment
from .environment import NodeSpec, RunSpec

ROLES, FIRST_RANK = "MUSTER_ROLES", "MUSTER_FIRST_RANK"
ROLE, ROLE_INDEX, ROLE_HOST, ROLE_PORT = "MUSTER_ROLE", "MUSTER_ROLE_INDEX", "MUSTER_ROLE_HOST", "MUSTER_ROLE_PORT"
ROLE_GPUS = "MUSTER_ROLE_GPUS"
# What a pod makes its variables of (trainer/node/agent/pods.py), and the key of the run, in a Secret of the cluster.
POD_ROLES, POD_KEY = "MUSTER_POD_ROLES", "MUSTER_ROLES_KEY"
# What a run with roles lacks, and what does the same there.
_ALONE = "`separate = true` and `restart = 3` let each node of a role start again without the others"
_BESIDE = {
    **dict.fromkeys(("min_nodes", "spare", "arbiter"), _ALONE),
    "wait": "`muster gpus` shows who has the hosts: start it once they are free",
    "on_end": "let the command of the role that ends the run do it: bash run.sh",
    "args": "a role needs a script: Muster's own trainer runs alone",
}
# Pods are placed one by one, and each fetches its image first.
_PODS_WITHIN_S = 3600


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


@dataclass(frozen=True)
class Where:
    """A node as the others reach it: its address, its port for questions, and how many ranks and GPUs it has."""

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
        ranks = command.asked_ranks(role.processes or (options.nproc if role is first else ""))
        restarts = role.restart or command.restarts or int((options.restarts if role is first else "") or 0)
        acted.append(Acted(role, command.words, ranks, restarts, command.bare and not ranks))
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
    for name, instead in _BESIDE.items():
        if options.role and getattr(options, name):
            raise UsageError(f"{flag_of(name)}: not in a run of several roles", instead)


def with_ports(acted: Sequence[Acted], choose: Callable[[Role], int]) -> tuple[Acted, ...]:
    """The roles with the ports that `choose` finds for those that take any free one."""
    return tuple(
        replace(each, role=replace(each.role, port=choose(each.role))) if each.role.port == ANY_PORT else each
        for each in acted
    )


def worlds(acted: Sequence[Acted]) -> Iterator[World]:
    """The worlds of all roles, in the order in which the roles start."""
    for each in acted:
        count = each.role.nodes
        if each.role.separate:
            yield from (World(each, index, 1) for index in range(count))
        else:
            yield World(each, 0, count)


def with_gpus(hosts: Sequence[Host], acted: Sequence[Acted]) -> tuple[Host, ...]:
    """The hosts, each with as many GPUs as its role asks for; of GPUs that a host names, the first ones."""
    asked = {name: each.role.gpus for each in acted for name in each.role.hosts if each.role.gpus >= 0}
    return tuple(
        replace(host, gpus=_first(host.gpus, asked[host.name])) if host.name in asked else host for host in hosts
    )


def _first(own: Gpus, asked: int) -> Gpus:
    return (own[:asked] if isinstance(own, tuple) else asked) if asked else 0


def shares(acted: Sequence[Acted], gpus: int) -> list[range]:
    """Of this machine's `gpus` those of each node: what its role asks for, or its part of what is left."""
    asked = [each.role.gpus for each in acted for _ in range(each.role.nodes)]
    open_ones = asked.count(-1)
    rest = max(0, gpus - sum(count for count in asked if count > 0)) // open_ones if open_ones else 0
    made, at = list[range](), 0
    for count in asked:
        end = at + (rest if count < 0 else count)
        made.append(range(at, end) if end <= gpus else range(0))
        at = end
    return made


def on_this_machine(
    acted: Sequence[Acted], doors: Sequence[tuple[str, int, int]], key: str, make: Callable[[World, int], RunSpec]
) -> RunSpec:
    """All nodes of a run on this machine. `doors`: for each node its address, and two ports. `make`: plans one world
    that meets on a port."""
    nodes, where = list[NodeSpec](), dict[str, list[Where]]()
    spec, main, words = None, first_of([each.role for each in acted]), tuple[str, ...]()
    for world in worlds(acted):
        _, _, port = doors[len(nodes)]
        spec = make(world, port)
        words = spec.arguments if world.acted.role is main else words
        for index, node in enumerate(spec.nodes, world.first):
            role, place = world.acted.role, len(nodes)
            name = role.name if role.nodes == 1 else f"{role.name}-{index}"
            ranks = int(node.environment.get(environment.LAUNCHER_RANKS) or node.environment["PET_NPROC_PER_NODE"])
            where.setdefault(role.name, []).append(Where(name, *doors[place][:2], ranks))
            more = {
                environment.NODE: name,
                "PET_RDZV_ID": f"{node.environment['PET_RDZV_ID']}-{role.name}-{world.first}",
            }
            given = {**node.environment, **more}
            nodes.append(NodeSpec(name, place, given, spec.arguments, world.acted.restarts))
    if spec is None:
        raise ValueError("a run has a role")
    with_roles = variables(acted, where, key, shared=True)
    nodes = [replace(node, environment={**node.environment, **with_roles[node.name]}) for node in nodes]
    return replace(spec, nodes=tuple(nodes), arguments=words)


def variables(
    acted: Sequence[Acted], where: Mapping[str, Sequence[Where]], key: str, shared: bool = False
) -> dict[str, dict[str, str]]:
    """What each node knows of all roles, by its name. `where`: the nodes of each role. `shared`: on one machine, where
    the nodes of a role cannot have the same port."""
    roles = [each.role for each in acted]
    services = {
        node.name: role.port + index * shared if role.port else 0
        for role in roles
        for index, node in enumerate(where[role.name])
    }
    rows = [
        {
            **{"name": role.name, "ends": role.ends, "after": list(role.after), "ready": role.ready},
            "within": role.within,
            "nodes": {node.name: [node.address, node.port, services[node.name]] for node in where[role.name]},
        }
        for role in roles
    ]
    everybody = {ROLES: json.dumps({"key": key, "roles": rows})}
    for role in roles:
        everybody |= _of_role(role, where[role.name], services)
    made, first_rank = dict[str, dict[str, str]](), 0
    main = first_of(roles)
    for role in sorted(roles, key=lambda role: role is not main):
        begins = first_rank
        for index, node in enumerate(where[role.name]):
            own = {ROLE: role.name, ROLE_INDEX: str(index), FIRST_RANK: str(first_rank if role.separate else begins)}
            own |= {ROLE_HOST: node.address, ROLE_GPUS: str(node.gpus)}
            own |= {ROLE_PORT: str(services[node.name])} if role.port else {}
            made[node.name] = {**everybody, **own}
            first_rank += node.ranks
    return made


def of_pods(acted: Sequence[Acted], where: Mapping[str, Sequence[Where]]) -> dict[str, dict[str, str]]:
    """What the pods of each role get, by its name. The key is none of it: a Secret of the cluster has it."""
    made = variables(acted, where, "")
    known = json.loads(next(iter(made.values()))[ROLES])
    known |= {"within": _PODS_WITHIN_S, "first_ranks": {node: int(own[FIRST_RANK]) for node, own in made.items()}}
    of_each = (ROLES, ROLE_INDEX, ROLE_HOST, FIRST_RANK)
    return {
        role: {POD_ROLES: json.dumps(known), **{name: text for name, text in own.items() if name not in of_each}}
        for role, own in ((role, made[nodes[0].name]) for role, nodes in where.items())
    }


def _of_role(role: Role, nodes: Sequence[Where], services: Mapping[str, int]) -> dict[str, str]:
    """What everybody knows of a role: MUSTER_REWARD_HOSTS, MUSTER_REWARD_PORT, MUSTER_REWARD_ADDRESSES."""
    name = f"MUSTER_{role.name.upper().replace('-', '_')}"
    known = {f"{name}_HOSTS": ",".join(node.address for node in nodes)}
    if role.port:
        ends = (f"[{node.address}]" if ":" in node.address else node.address for node in nodes)
        each = (f"{end}:{services[node.name]}" for end, node in zip(ends, nodes, strict=True))
        known |= {f"{name}_PORT": str(services[nodes[0].name]), f"{name}_ADDRESSES": ",".join(each)}
    return known


def by_node(run: RunSpec) -> dict[str, str]:
    """The role of each node, by its name; empty where the run has one command."""
    return {node.name: node.environment[ROLE] for node in run.nodes if ROLE in node.environment}
