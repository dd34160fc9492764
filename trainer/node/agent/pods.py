"""A node that is a Kubernetes pod: its variables, from Kubeflow's torch policy; how long it looks for the first pod.

A TrainJob gives its pods PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and similar variables, and `muster export` writes
the same ones into a JobSet. They lack what Muster adds to torch's rendezvous: which node hosts it, and the network
interface to the other nodes. A pod of a role has the names of all roles' pods, and its own number among them.
Standard library only.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import Refused, TrainError

from ..membership import meeting
from ..variables import number
from . import slurm

_PORT = "29500"
# What `muster export` writes for the pods of a role; the run's key is not in it, but comes from a Kubernetes Secret.
ROLES, KEY = "MUSTER_ROLES", "MUSTER_ROLES_KEY"
# How long to wait for the first pod, which may wait for a free machine long after the other pods have begun.
_PATIENCE_SECONDS = 3600.0


def applies(given: Mapping[str, str]) -> bool:
    """Whether only Kubeflow's variables state the rendezvous."""
    return "PET_MASTER_ADDR" in given and "PET_RDZV_ENDPOINT" not in given


def variables(given: Mapping[str, str], arguments: Sequence[str], here: Path) -> dict[str, str]:
    """The variables that this node gets in addition to `given`. `arguments`: those of the agent.

    The run folder is below `here` if `given` has none. Raises TrainError for a host name that has no address, and for
    roles that are not in the form that `muster export` writes.
    """
    nodes, place = number(given, "PET_NNODES", 1), number(given, "PET_NODE_RANK", 0)
    run = given.get("MUSTER_RUN_ID") or _run_name(given)
    made = slurm.unplanned_node_variables(arguments, slurm.ranks_of(given))
    made |= {"MUSTER_RUN_ID": run, "MUSTER_RUN_DIR": str(here / "runs" / run)}
    if nodes > 1:
        first = meeting.resolve(given["PET_MASTER_ADDR"], _PATIENCE_SECONDS)
        own = meeting.local_address(first, 1)
        made |= slurm.rendezvous_variables(first, own, given.get("PET_MASTER_PORT") or _PORT, place, run)
        made["MUSTER_NODE"] = _node_name(place)
    return slurm.missing_variables(given, arguments, made) | (_of_role(given) if ROLES in given else {})


def _run_name(given: Mapping[str, str]) -> str:
    """The run's name, the same in all pods: torchrun's id of the job, or else the first pod's name or address."""
    name, address = given.get("PET_RDZV_ID", ""), given["PET_MASTER_ADDR"]
    if name in ("", "none"):  # torchrun's word for no id
        name = address.partition(".")[0]
        if re.fullmatch("[0-9.]+|.*:.*", address):  # other jobs may meet there too, at other ports
            name = f"at-{address}-{given.get('PET_MASTER_PORT') or _PORT}"
    return re.sub("[^A-Za-z0-9_-]+", "-", name)


def _node_name(place: int) -> str:
    """The pod's name, which ends with its place. With hostNetwork it is the machine's, which two pods may share."""
    name = socket.gethostname()
    return name if name.endswith(f"-{place}") else f"{name}-{place}"


def _of_role(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a pod of a role: its node's name, and the plan with the run's key and the pod's address."""
    index = number(given, "MUSTER_ROLE_INDEX", 0)
    try:
        plan: dict[str, Any] = json.loads(given[ROLES])
        nodes = next(row["nodes"] for row in plan["roles"] if row["name"] == given["MUSTER_ROLE"])
        node = list(nodes)[index]
        name, *_ = nodes[node]
    except (ValueError, KeyError, IndexError, StopIteration, TypeError, RecursionError) as fault:
        raise Refused(f"{ROLES} is not what muster export writes: {fault!r}", "export the run again") from fault
    if not given.get(KEY):
        raise TrainError(f"{KEY} is empty: the roles need a key", "create the Secret that the exported file names")
    # The pod listens at this address. The other pods use its name, since a pod that replaces it has another address.
    nodes[node][0] = meeting.resolve(str(name), _PATIENCE_SECONDS)
    return {ROLES: json.dumps({**plan, "key": given[KEY]}), "MUSTER_NODE": node}
