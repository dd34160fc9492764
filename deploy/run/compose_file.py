"""A run as a compose file of its own: as many nodes as asked, on one machine. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..job.script import PER_NODE
from .environment import (
    LAUNCHER_RANKS,
    MASTER_PORT,
    RUNS_IN_CONTAINER,
    SCRIPT,
    SENT,
    Placement,
    Rendezvous,
    node_environment,
)

SENT_AT = "/workspace"
_USER = "${MUSTER_USER:-1000:1000}"


def compose_file(name: str, image: str, nodes: int, words: Sequence[str], own: Mapping[str, str]) -> dict[str, Any]:
    """The document, for a YAML or JSON writer. `words`: the agent's; `own`: variables of the user's.

    The folder where `docker compose` runs is sent, and `runs` in it has the run folder.
    """
    services, ranks = {}, own.get("PET_NPROC_PER_NODE", "1")
    per_node = list(words[:2]) == [SCRIPT, PER_NODE]
    if per_node:
        own = {**own, "PET_NPROC_PER_NODE": "1", LAUNCHER_RANKS: ranks}
    for rank in range(nodes):
        service = f"node-{rank}"
        node = Placement(service, rank, nodes, int(ranks), "eth0", 1)
        meeting = Rendezvous(f"node-0:{MASTER_PORT}", name)
        variables = node_environment(node, meeting, name, f"{RUNS_IN_CONTAINER}/{name}", 0)
        services[service] = {
            "image": image,
            "command": list(words),
            "environment": {**variables, SENT: SENT_AT, **own},
            "volumes": [f".:{SENT_AT}:ro", f"./runs:{RUNS_IN_CONTAINER}"],
            # What earlier runs left there is not sent again.
            "tmpfs": [f"{SENT_AT}/runs"],
            "user": _USER,
            "shm_size": "1g",
            # More than PET_SHUTDOWN_TIMEOUT: ranks write a checkpoint when they are told to stop.
            "stop_grace_period": "30s",
            "depends_on": {"folder": {"condition": "service_completed_successfully"}},
            "labels": {"muster.run": name},
        }
    return {"name": name, "services": {"folder": _folder(name, image), **services}}


def _folder(name: str, image: str) -> dict[str, Any]:
    """A service that runs once: the engine makes `runs` as root's, and the nodes' user could not write there."""
    opened = f'[ "$$(stat -c %u {RUNS_IN_CONTAINER})" = "$${{NODE_USER%%:*}}" ] || chmod 1777 {RUNS_IN_CONTAINER}'
    return {
        "image": image,
        "entrypoint": ["sh", "-c", opened],
        "environment": {"NODE_USER": _USER},
        "volumes": [f"./runs:{RUNS_IN_CONTAINER}"],
        "user": "0:0",
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": ["FOWNER"],
        "labels": {"muster.run": name},
    }
