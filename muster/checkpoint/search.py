"""The newest usable checkpoint of all ranks' disks, on every rank: no disk needs to be shared.

Each rank that looks tells what it has. The rank with the newest checkpoint verifies it, reads it and sends it to the
others. If it is damaged, the next newest is tried, which may be another rank's copy of the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from .. import exchange
from ..errors import CheckpointError, NewerFormat
from . import store


@dataclass(frozen=True)
class Search:
    """What a search came to: the `path` and `state` of the newest usable checkpoint (None if there is none)."""

    path: str | None
    state: dict[str, Any] | None
    damaged: list[store.Damaged]


def newest_of_all_ranks(folder: Path, *, looks: bool, group: dist.ProcessGroup | None = None) -> Search:
    """Search the checkpoints folder `folder` of each rank with `looks`; all ranks call this and get the same.

    Ranks of one host see the same disk: one of them should look. Raises NewerFormat on every rank if a newer Muster
    wrote a checkpoint that would be taken.
    """
    rank, _ = exchange.rank_and_world(group)
    mine = [(created, str(path)) for created, path in store.listed(folder)] if looks else []
    everyone = exchange.broadcast(exchange.gather(mine, group), group=group)
    candidates = [(created, -owner, path) for owner, own in enumerate(everyone) for created, path in own]
    damaged = []
    for _, owner, path in sorted(candidates, reverse=True):
        answer = _read(Path(path)) if rank == -owner else None
        answer = exchange.broadcast(answer, -owner, group)
        if "newer" in answer:
            raise NewerFormat(*answer["newer"])
        if "damaged" in answer:
            damaged.append(store.Damaged(Path(path), answer["damaged"]))
        else:
            return Search(path, answer["state"], damaged)
    return Search(None, None, damaged)


def _read(path: Path) -> dict[str, Any]:
    try:
        return {"state": store.load(path)[0]}
    except NewerFormat as error:
        return {"newer": (error.message, error.hint)}
    except CheckpointError as error:
        return {"damaged": error.message}
