"""What each real host runs where the run has several roles: each role's nodes as container.py plans them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...core.errors import DeployError
from ...host.facts import HostFacts
from ...job.inventory import Host
from ...job.load import read_text
from ...job.options import FLAG, Job
from ...run import environment, roles
from ..start import plan
from . import container
from .container import Meeting, NodeContainer, Work

# Beside the port of the rendezvous, as for nodes that train on without each other.
PORTS = range(29600, 29700)


def node_containers(
    hosts: Sequence[Host],
    facts: Sequence[HostFacts],
    job: Job,
    work: Work,
    met: Meeting,
    addresses: Sequence[str],
) -> tuple[NodeContainer, ...]:
    """One node for each host, in their order. `addresses`: of the hosts, where they meet.

    Raises DeployError for a role's port that is taken on its host.
    """
    if not work.roles:
        return container.node_containers(hosts, facts, job, work, met)
    places = {host.name: place for place, host in enumerate(hosts)}
    made, where = dict[int, NodeContainer](), dict[str, list[roles.Where]]()
    port, *free = plan.choose_ports(facts, PORTS, 1 + len(work.roles), taken=(met.port,))
    acted = roles.with_ports(work.roles, lambda role: free.pop())
    for world in roles.worlds(acted):
        role = world.acted.role
        own = [places[name] for name in role.hosts[world.first : world.first + world.nodes]]
        own_hosts, own_facts = [hosts[place] for place in own], [facts[place] for place in own]
        _refuse_taken(role.name, role.port, own_hosts, own_facts)
        planned = container.node_containers(
            own_hosts, own_facts, *_of_world(world, job, work), _meeting(own, facts, met, addresses)
        )
        for index, node in enumerate(planned):
            place = own[index]
            made[place] = _placed(node, place, len(hosts), f"{role.name}-{world.first}", work)
            ranks = int(node.environment.get(environment.LAUNCHER_RANKS) or node.environment["PET_NPROC_PER_NODE"])
            where.setdefault(role.name, []).append(
                roles.Where(node.node, addresses[place], port, ranks, len(facts[place].gpus))
            )
    known = roles.variables(acted, where, work.share_key)
    return tuple(_knowing(made[place], known) for place in range(len(hosts)))


def _of_world(world: roles.World, job: Job, work: Work) -> tuple[Job, Work]:
    """What a world's nodes have of the job, and what they do."""
    acted = world.acted
    work = replace(work, script=acted.words, restarts=acted.restarts, bare=acted.bare)
    # The job's own number is that of the command that was typed beside the roles.
    return replace(job, processes=read_text("nproc", acted.ranks) if acted.ranks else "auto"), work


def _meeting(own: Sequence[int], facts: Sequence[HostFacts], met: Meeting, addresses: Sequence[str]) -> Meeting:
    """Where the nodes of one world meet: on the first of them."""
    port = met.port if own[0] == 0 else plan.choose_port(facts[own[0]])
    return Meeting(addresses[own[0]], port, tuple(met.interfaces[place] for place in own))


def _placed(node: NodeContainer, place: int, nodes: int, world: str, work: Work) -> NodeContainer:
    """A node of a world as a node of the run."""
    start = f"{work.token}-{place}"
    labels = {"muster.start": start, "muster.place": str(place), "muster.nodes": str(nodes)}
    variables = {**node.environment, "PET_RDZV_ID": f"{node.environment['PET_RDZV_ID']}-{world}"}
    return replace(node, docker=node.docker.with_labels(labels), environment=variables, start=start, first=place == 0)


def _knowing(node: NodeContainer, known: Mapping[str, Mapping[str, str]]) -> NodeContainer:
    labels = {"muster.role": known[node.node][roles.ROLE]}
    docker = node.docker.with_labels(labels)
    return replace(node, docker=docker, environment={**node.environment, **known[node.node]})


def _refuse_taken(role: str, port: int, hosts: Sequence[Host], facts: Sequence[HostFacts]) -> None:
    """Raise DeployError for a port that something on a role's host listens on already."""
    for host, fact in zip(hosts, facts, strict=True):
        if port and port in fact.listening:
            what = f"{host.name}: port {port} of {role} is taken: something listens there"
            raise DeployError(what, f"give the role another port, in [[role]] or {FLAG.role}")
