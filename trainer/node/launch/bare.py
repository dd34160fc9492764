"""Removes torchrun's variables for a user's launcher, and for the only rank of a run.

A launcher sets these variables for its own ranks. A run's only rank, typed as `python train.py`, starts as it would
without Muster, because many scripts take their distributed path if RANK or LOCAL_RANK is set: NCCL on a machine without
a GPU, for example. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.ray import OF_TORCHRUN

from .launcher import Place

RANK = "MUSTER_BARE_RANK"
_COUNT = "TORCHELASTIC_RESTART_COUNT"


def without_torchrun_variables(given: Mapping[str, str]) -> dict[str, str]:
    """The variables for a rank that torchrun would start with `given`. Its attempt can still be read in MUSTER_LIFE."""
    launches = int(given.get("MUSTER_LAUNCHER_RANKS") or 0)
    is_bare = given.get(RANK) == "1" and given.get("WORLD_SIZE") == "1"
    if not (launches or is_bare):
        return dict(given)
    own = {name: value for name, value in given.items() if not re.fullmatch(OF_TORCHRUN, name)}
    if not launches:
        return own
    node, nodes, port = (int(given[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    place = Place(node, nodes, launches, given["MASTER_ADDR"], port)
    return {**own, _COUNT: given[_COUNT], **place.variables(one_rank=not is_bare)}
