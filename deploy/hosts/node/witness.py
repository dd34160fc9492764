"""The containers that witness a run's end (--on-end), one next to each node (trainer/node/beside/on_end.py). Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from ...core.formats import LABELS
from ...core.names import NODE_PROGRAMS
from ...host import commands
from ...host.facts import HostFacts
from ...job.inventory import Host
from ...job.options import Job
from ...run import environment
from . import container
from .container import NodeContainer, Work
from .docker_run import DockerRun

PORTS = range(29700, 29800)


def with_witnesses(
    nodes: Sequence[NodeContainer],
    hosts: Sequence[Host],
    facts: Sequence[HostFacts],
    job: Job,
    work: Work,
    addresses: Sequence[str],
    port: int,
) -> tuple[NodeContainer, ...]:
    """Return the nodes, each with its witness; unchanged nodes without --on-end. The witnesses meet at `addresses`."""
    if not work.on_end:
        return tuple(nodes)
    made, rank = [], 0
    ours = {environment.NODE, environment.RUN_DIR, environment.RESTARTED_BY_HOST, environment.LAUNCHER_RANKS}
    ours |= {environment.CLAIM, environment.WAIT}
    for place, (node, host, fact) in enumerate(zip(nodes, hosts, facts, strict=True)):
        start, restarts = node.environment["PET_RDZV_ID"], environment.RESTARTED_BY_HOST in node.environment
        plan = {
            **{"command": work.on_end, "run": work.run_id, "folder": commands.RUN_IN_CONTAINER, "nodes": [node.node]},
            **{"start": start, "restarts": restarts, "rank": rank, "hosts": list(addresses), "place": place},
            **{"names": [each.node for each in nodes], "port": port, "token": work.token},
        }
        variables = {
            name: value for name, value in node.environment.items() if name not in ours and not name.startswith("PET_")
        }
        variables[environment.ON_END] = json.dumps(plan)
        labels = {"muster.format": str(LABELS), "muster.end": work.run_id, "muster.start": node.start}
        options = (
            *("--volume", f"{node.folder}:{commands.RUN_IN_CONTAINER}", *container.LOG_LIMITS),
            *container.container_options(host, replace(fact, gpus=(), rdma=False), job),
            *(("--ulimit", "core=0") if node.secrets else ()),
        )
        command = ("-P", "-m", NODE_PROGRAMS, "on_end")
        docker = DockerRun(f"{node.name}-end-{work.token}", labels, options, node.image, command, once=True)
        end = replace(node, docker=docker, environment=variables, fresh=False, first=False, keep=(), claim="")
        end = replace(end, own=commands.NO_CLAIM)
        made.append(replace(node, witness=end))
        rank += container.processes(fact, job)
    return tuple(made)
