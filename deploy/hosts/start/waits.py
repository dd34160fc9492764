"""What each node's claim on its host says; with --wait, also what the node must know to wait, and the order of hosts.

The order in which nodes take hosts is the same for all runs. The nodes themselves wait:
trainer/node/queue/waiting_node.py, and docs/decisions/0057 explains how.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...host import audit, gpus
from ...host.commands import OwnClaim
from ...host.facts import HostFacts
from ...job.inventory import Host
from ...job.values import Gpus as Asked
from ...run import environment
from ..node.container import NodeContainer, Work, restarts

# Firewalls must allow these ports for the ranks anyway. Deploys that begin together must not choose the same port.
_PORTS = range(40_000, 60_000)


def draw_ports() -> list[int]:
    """Ports for the wait, in a random order that no other deploy shares."""
    return random.sample(_PORTS, 1000)


@dataclass(frozen=True)
class Queue:
    """Where the nodes meet while they wait: the hosts' addresses, in the hosts' order, and a port that is free on all.

    `number`: the time at which the wait begins, in nanoseconds. `key`: the secret with which the nodes prove to each
    other that they belong to the run. `control`: the user's machine.
    """

    addresses: tuple[str, ...]
    port: int
    number: int
    key: str
    control: str


def queue(addresses: tuple[str, ...], port: int, first: HostFacts) -> Queue:
    """A wait that begins now, by the clock of the first host."""
    began = time.time() + first.clock_ahead_s
    return Queue(addresses, port, int(began * 1e9), secrets.token_hex(32), audit.user_and_machine()[1])


def with_claims(
    nodes: Sequence[NodeContainer], hosts: Sequence[Host], facts: Sequence[HostFacts], work: Work, queue: Queue
) -> tuple[NodeContainer, ...]:
    """Return the nodes, each with its claim; with `work.waits`, each also with what it must know to wait."""
    made, rank = [], 0
    for place, (node, host, fact) in enumerate(zip(nodes, hosts, facts, strict=True)):
        claim = _claim(node, fact, work, queue)
        variables = {**node.environment, environment.CLAIM: json.dumps(claim)}
        if work.waits:
            plan = {
                **_plan(nodes, hosts, facts, queue),
                "place": place,
                "rank": rank,
                **_here(node, host.gpus, fact, work),
            }
            variables[environment.WAIT] = json.dumps(plan)
        rank += int(node.environment["PET_NPROC_PER_NODE"])
        own = OwnClaim(f"run-{queue.number}-{work.token}", json.dumps(claim), node.image, work.waits)
        made.append(replace(node, environment=variables, own=own))
    return tuple(made)


def _claim(node: NodeContainer, facts: HostFacts, work: Work, queue: Queue) -> dict[str, Any]:
    """The claim in the form that trainer/node/queue/claims.py writes and host/gpus.py reads."""
    return {
        "number": queue.number,
        "token": work.token,
        "run": work.run_id,
        "user": facts.user,
        "control": queue.control,
        "gpus": [] if work.waits else [gpu.uuid for gpu in facts.gpus],
        "waits": False,
        "whole": not facts.gpus,
        "state": gpus.RESTS if work.waits else gpus.RUNS,
        "returns": environment.RESTARTED_BY_HOST in node.environment,
    }


def _plan(
    nodes: Sequence[NodeContainer], hosts: Sequence[Host], facts: Sequence[HostFacts], queue: Queue
) -> dict[str, Any]:
    """What all nodes of the run know. `order`: the places, in an order that all users of the hosts share."""
    # Users give hosts different names, so host names cannot define the order.
    order = sorted(range(len(hosts)), key=lambda place: (facts[place].machine, queue.addresses[place]))
    return {
        "names": [node.node for node in nodes],
        "addresses": list(queue.addresses),
        "order": order,
        "port": queue.port,
        "key": queue.key,
        "since": queue.number / 1e9,
    }


def _here(node: NodeContainer, asked: Asked, facts: HostFacts, work: Work) -> Mapping[str, Any]:
    """What applies to this node only: the GPUs that it may get, and how often it may start."""
    return {
        "asked": list(asked) if isinstance(asked, tuple) else asked,
        "gpus": {gpu.uuid: gpu.index for gpu in facts.candidates},
        "lives": restarts(work, node.environment) + 1,
    }
