"""What each real host runs where the run has several roles: each role's nodes as container.py plans them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...core.errors import DeployError
from ...host.facts import HostFacts
from ...job.inventory import Host
from ...job.load import read_text
from ...job.options import FLAG, Job
from ...run import roles
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
    made, where = dict[int, NodeContainer](), list[roles.Where]()
    port, *free = plan.choose_ports(facts, PORTS, 1 + len(work.roles), taken=(met.port,))
    acted = roles.with_ports(work.roles, iter(free))
    for world in roles.worlds(acted):
        role, own = world.acted.role, [places[name] for name in world.hosts]
        own_hosts, own_facts = [hosts[place] for place in own], [facts[place] for place in own]
        if taken := [host.name for host, fact in zip(own_hosts, own_facts, strict=True) if role.port in fact.listening]:
            what = f"{taken[0]}: port {role.port} of {role.name} is taken: something listens there"
            raise DeployError(what, f"give the role another port, in [[role]] or {FLAG.role}")
        # The nodes of a world meet on the first of them.
        interfaces = tuple(met.interfaces[place] for place in own)
        meeting = Meeting(addresses[own[0]], plan.choose_port(own_facts[0]), interfaces)
        planned = container.node_containers(own_hosts, own_facts, *_of_world(world, job, work), meeting)
        for place, node in zip(own, planned, strict=True):
            start = f"{work.token}-{place}"
            labels = {"muster.start": start, "muster.place": str(place), "muster.nodes": str(len(hosts))}
            made[place] = replace(
                node,
                docker=node.docker.with_labels({**labels, "muster.role": role.name}),
                environment=world.own_meeting(node.environment),
                start=start,
                first=place == 0,
            )
            ranks, gpus = roles.ranks_of(node.environment), len(facts[place].gpus)
            where.append(roles.Where(role.name, node.node, addresses[place], port, ranks, gpus))
    known = roles.variables(acted, where, work.share_key)
    nodes = (made[place] for place in range(len(hosts)))
    return tuple(replace(node, environment={**node.environment, **known}) for node in nodes)


def _of_world(world: roles.World, job: Job, work: Work) -> tuple[Job, Work]:
    """What a world's nodes have of the job, and what they do."""
    acted = world.acted
    work = replace(work, script=acted.words, restarts=acted.restarts, bare=acted.bare)
    # The job's own number is that of the command that was typed beside the roles.
    return replace(job, processes=read_text("nproc", acted.ranks) if acted.ranks else "auto"), work
