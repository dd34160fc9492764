"""What the variables of a node say (contract.md): its place, ranks, files of events, and whether ranks are watched.

Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from .torch_names import plain

# On hosts whose nodes go on without a lost one: the number of the node's first file of a rank; ranks change theirs.
FIRST_FILE = "MUSTER_FIRST_RANK_FILE"
# What the names of those begin with that environment.json shows, but for secrets.
WRITTEN_DOWN = ("PET_", "MUSTER_", "NCCL_", "GLOO_", "OMP_", "CUDA_", "TORCH_", "MASTER_", "WORLD_SIZE")


def number(given: Mapping[str, str], name: str, otherwise: int) -> int:
    """A variable as a number; what is none is taken for one that is not there."""
    text = given.get(name, "")
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else otherwise


def place(given: Mapping[str, str] = os.environ) -> int:
    """The place of this node among all."""
    return number(given, "PET_NODE_RANK", 0)


def ranks(given: Mapping[str, str] = os.environ) -> int:
    """How many ranks this node has, where that is said as a number."""
    return number(given, "PET_NPROC_PER_NODE", 1)


def first_rank(given: Mapping[str, str] = os.environ) -> int:
    """The first rank of this node, where each node has as many."""
    return place(given) * ranks(given)


def is_observed(given: Mapping[str, str]) -> bool:
    """Whether the ranks may be watched from inside: the user has not switched that off, nor all that is ours."""
    return not (plain(given) or given.get("MUSTER_OBSERVE") == "0")


def event_file_of(plan: Mapping[str, Any] | None, name: str, per_node: int) -> Callable[[int], int]:
    """The number of the file in which a rank of this node tells its events, by its number in the present epoch."""
    if not plan or not plan.get("apart"):
        return lambda rank: rank
    joined = plan.get("joined", {})
    first = (joined[name][2] if name in joined else list(plan["nodes"]).index(name)) * per_node
    return lambda rank: first + rank % per_node
