"""The meaning of a node's variables (contract.md): its place, ranks, event files, and whether ranks are watched.

Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from .torch_names import keeps_torch_unchanged

# If nodes continue without a lost one: the number of the node's first rank file, because rank numbers change.
FIRST_FILE = "MUSTER_FIRST_RANK_FILE"
# Prefixes of the variables that environment.json shows, except secrets.
WRITTEN_DOWN = ("PET_", "MUSTER_", "NCCL_", "GLOO_", "OMP_", "CUDA_", "TORCH_", "MASTER_", "WORLD_SIZE")


def number(given: Mapping[str, str], name: str, otherwise: int) -> int:
    """A variable as a number; `otherwise` if it is not set or not a number."""
    text = given.get(name, "")
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else otherwise


def place(given: Mapping[str, str] = os.environ) -> int:
    """The place of this node among all nodes of the run."""
    return number(given, "PET_NODE_RANK", 0)


def ranks(given: Mapping[str, str] = os.environ) -> int:
    """How many ranks this node has; 1 if the variable is not a number."""
    return number(given, "PET_NPROC_PER_NODE", 1)


def first_rank(given: Mapping[str, str] = os.environ) -> int:
    """The first rank of this node, if every node has the same number of ranks."""
    return place(given) * ranks(given)


def is_observed(given: Mapping[str, str]) -> bool:
    """Whether the ranks may be watched from inside: the user has turned off neither this nor all changes to torch."""
    return not (keeps_torch_unchanged(given) or given.get("MUSTER_OBSERVE") == "0")


def event_file_of(plan: Mapping[str, Any] | None, name: str, per_node: int) -> Callable[[int], int]:
    """Return a function from a rank of this node, in the current epoch, to the number of its event file."""
    if not plan or not plan.get("apart"):
        return lambda rank: rank
    joined = plan.get("joined", {})
    first = (joined[name][2] if name in joined else list(plan["nodes"]).index(name)) * per_node
    return lambda rank: first + rank % per_node
