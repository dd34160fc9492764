"""This process's place in the run, read and checked from the variables that torchrun sets."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from muster.errors import Refused

from .. import NAME
from ..node.membership import min_nodes
from ..node.variables import FIRST_FILE


@dataclass(frozen=True)
class Ranks:
    """One process's place in the run.

    `disks`: how many disks get each checkpoint, when each host has its own disk. `file`: the number in the names of
    this process's files, if it is not the rank (node/membership/min_nodes.py).
    """

    rank: int
    local_rank: int
    world: int
    node: str
    disks: int = 2
    file: int | None = None

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes for all ranks."""
        return self.rank == 0


def discover(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Read this process's place from torchrun's variables.

    Raises Refused if a variable is missing or invalid, or if the world size is not the planned one: a node that lost
    the others must not train alone and look like a success.
    """
    missing = [
        name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in environment
    ]
    if missing:
        raise Refused(
            f"not started by torchrun: {', '.join(missing)} not set",
            f"`torchrun --nproc-per-node 2 -m {NAME}`, or `make up` for several nodes",
        )
    place = Ranks(
        rank=_whole(environment, "RANK"),
        local_rank=_whole(environment, "LOCAL_RANK"),
        world=_whole(environment, "WORLD_SIZE"),
        node=environment.get("MUSTER_NODE") or socket.gethostname(),
        file=_file(environment),
    )
    # whichever nodes remain, one of them then has the checkpoint
    if environment.get("PET_RDZV_BACKEND") == min_nodes.BACKEND:
        place = replace(place, disks=place.world)
    if not place.rank < place.world:
        raise Refused(f"RANK={place.rank} is outside WORLD_SIZE={place.world}")
    _check_planned(place, environment)
    return place


def _file(environment: Mapping[str, str]) -> int | None:
    if FIRST_FILE not in environment:
        return None
    return _whole(environment, FIRST_FILE) + _whole(environment, "LOCAL_RANK")


def _check_planned(place: Ranks, environment: Mapping[str, str]) -> None:
    nodes = environment.get("PET_NNODES", "")
    if not nodes.isdecimal():  # unset, or an elastic range: no fixed plan
        return
    joined = _whole(environment, "GROUP_WORLD_SIZE", nodes)
    if joined != int(nodes):
        raise Refused(
            f"{joined} of {nodes} planned nodes joined: Muster does not train with fewer", "start the missing nodes"
        )
    ranks = environment.get("PET_NPROC_PER_NODE", "")
    if ranks.isdecimal() and int(nodes) * int(ranks) != place.world:
        raise Refused(  # `muster explain` recognises this sentence
            f"the world has {place.world} ranks, planned were {nodes} nodes x {ranks}",
            "start every node with the same PET_NPROC_PER_NODE",
        )


def _whole(environment: Mapping[str, str], name: str, default: str = "") -> int:
    text = environment.get(name, default)
    if not text.isdecimal():
        raise Refused(
            f"{name} must be a whole number, got {text!r}", "torchrun sets it; does something else set it too?"
        )
    return int(text[:9])  # Python refuses to parse a number of thousands of digits
