"""Who starts without torchrun's variables, and which are taken out: a launcher of the user's, the only rank of a run.

A launcher sets them for its own ranks. The only rank, typed as `python train.py`, starts as it does by hand: many
scripts take their distributed path where RANK or LOCAL_RANK is set: NCCL on a machine without a GPU, say. Standard
library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.ray import OF_TORCHRUN

from .launcher import Place

RANK = "MUSTER_BARE_RANK"
_COUNT = "TORCHELASTIC_RESTART_COUNT"


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a rank that torchrun starts with `given`; MUSTER_LIFE has its attempt for those who watch it."""
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
