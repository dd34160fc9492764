"""The nodes of a run that keep training without a lost one (--min-nodes): what each must know of the others. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ...core.errors import DeployError
from ...job.options import FLAG
from ...run import environment
from .container import NodeContainer, Work

# Close to the rendezvous port, and fixed: users must know before the run what a firewall has to allow.
PORTS = range(29600, 29700)


def with_groups(
    nodes: Sequence[NodeContainer],
    addresses: Sequence[str],
    work: Work,
    waiting: Collection[str] = (),
    arbiter: str = "",
) -> tuple[NodeContainer, ...]:
    """Return the nodes, each with what it must know of the others; unchanged nodes if all of them are needed.

    `addresses`: the hosts' addresses in the network where they meet. `waiting`: the hosts that are spares. `arbiter`:
    the host that only votes. Raises DeployError if the hosts have different numbers of ranks.
    """
    if not work.least:
        return tuple(nodes)
    ranks = {node.host: node.environment["PET_NPROC_PER_NODE"] for node in nodes if node.host != arbiter}
    if len(set(ranks.values())) > 1:
        listed = ", ".join(f"{host} {count}" for host, count in ranks.items())
        raise DeployError(
            f"{FLAG.min_nodes} {work.least}: the hosts have different numbers of ranks: {listed}",
            f"give each host the same number: {FLAG.nproc} {min(ranks.values(), key=int)}",
        )
    where = {str(node.node): (address, *work.ports) for node, address in zip(nodes, addresses, strict=True)}
    spares = [str(node.node) for node in nodes if node.host in waiting]
    votes = next((str(node.node) for node in nodes if node.host == arbiter), "")
    more = environment.group_variable(work.least, work.share_key, where, apart=True, spares=spares, arbiter=votes)
    return tuple(replace(node, environment={**node.environment, **more}) for node in nodes)
