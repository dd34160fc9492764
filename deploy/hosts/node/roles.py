"""What each real host runs in a run with several roles: each role's nodes, as container.py plans them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...core.errors import DeployError
from ...core.names import node_of
from ...host.facts import HostFacts
from ...job.inventory import Host
from ...job.options import FLAG, Job
from ...run import roles
from ..start import plan
from . import container
from .container import Meeting, NodeContainer, Work
from .group import PORTS


def node_containers(
    hosts: Sequence[Host],
    facts: Sequence[HostFacts],
    job: Job,
    work: Work,
    met: Meeting,
    addresses: Sequence[str],
) -> tuple[NodeContainer, ...]:
    """Return one node for each host, in their order. `addresses`: the hosts' addresses where they meet.

    Raises DeployError if a role's port is taken on its host.
    """
    if not work.roles:
        return container.node_containers(hosts, facts, job, work, met)
    places = {host.name: place for place, host in enumerate(hosts)}
    port, *free = plan.choose_ports(facts, PORTS, 1 + len(work.roles), taken=(met.port,))
    acted, where = roles.with_ports(work.roles, iter(free)), list[roles.NodeAddress]()
    for role in (each.role for each in acted):
        for name in role.hosts:
            fact = facts[places[name]]
            if role.port in fact.listening:
                what = f"{name}: port {role.port} of {role.name} is taken: another program listens there"
                raise DeployError(what, f"give the role another port, in [[role]] or {FLAG.role}")
            where.append(roles.NodeAddress(node_of(name), addresses[places[name]], port, len(fact.gpus)))
    known, made = roles.variables(acted, where, work.share_key), dict[str, NodeContainer]()
    work = replace(work, environment={**work.environment, **known}, places=places)
    for world in roles.worlds(acted):
        own = [places[name] for name in world.role.hosts]
        own_hosts, own_facts = [hosts[place] for place in own], [facts[place] for place in own]
        # The job's own number of ranks belongs to the command that was typed next to the roles.
        own_job = replace(job, processes=world.processes)
        own_work = replace(work, script=world.words, restarts=world.restarts, bare=world.bare, role=world.role.name)
        # The nodes of a role's world meet on its first node.
        interfaces = tuple(met.interfaces[place] for place in own)
        meeting = Meeting(addresses[own[0]], plan.choose_port(own_facts[0]), interfaces)
        for node in container.node_containers(own_hosts, own_facts, own_job, own_work, meeting):
            made[node.host] = node
    return tuple(made[host.name] for host in hosts)
