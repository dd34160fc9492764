"""A node that is a pod of Kubernetes: the variables of contract.md, made from those of Kubeflow's torch policy.

A TrainJob gives its pods PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and their like, and `muster export` writes the same
into a JobSet. They lack what Muster adds to torch's rendezvous: who is its host, and the interface to the others.
Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..membership import meeting
from . import slurm

_PORT = "29500"
# The first pod may wait for a free machine long after the others have begun.
_PATIENCE_SECONDS = 3600.0


def applies(given: Mapping[str, str]) -> bool:
    """Whether variables say where the nodes meet in Kubeflow's words alone."""
    return "PET_MASTER_ADDR" in given and "PET_RDZV_ENDPOINT" not in given


def variables(given: Mapping[str, str], arguments: Sequence[str], here: Path) -> dict[str, str]:
    """What this node gets beside `given`. `arguments`: of the agent; the run folder is below `here` if none is given.

    Raises TrainError for a name without address.
    """
    nodes, place = slurm.number(given, "PET_NNODES", 1), slurm.number(given, "PET_NODE_RANK", 0)
    run = given.get("MUSTER_RUN_ID") or given["PET_MASTER_ADDR"].partition(".")[0]
    made = slurm.of_a_node(given, arguments, slurm.ranks_of(given))
    made |= {"MUSTER_RUN_ID": run, "MUSTER_RUN_DIR": str(here / "runs" / run)}
    if nodes > 1:
        first = meeting.resolve(given["PET_MASTER_ADDR"], _PATIENCE_SECONDS)
        own = meeting.this_end(first, 1)
        made |= slurm.met(first, own, given.get("PET_MASTER_PORT") or _PORT, place, run)
    return slurm.beside(given, arguments, made)
