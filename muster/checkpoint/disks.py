"""Which ranks see the same disk, and so which ranks save: each host has its own disk, but some clusters share one."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist

from .. import exchange


def savers(lowest: Sequence[int], most: int) -> list[int]:
    """The ranks that write a whole state: rank 0, and the `lowest` rank on each other disk, `most` ranks in all."""
    return [0, *(rank for rank, first in enumerate(lowest) if rank and rank == first)][:most]


def lowest_on_each(folder: Path, group: dist.ProcessGroup | None = None) -> list[int]:
    """For each rank, the lowest rank that sees the same `folder`; -1 if the rank cannot write there.

    All ranks call this. exchange.py explains `group`.
    """
    rank, world = exchange.rank_and_world(group)
    mark = exchange.broadcast(f".rank-{secrets.token_hex(8)}-" if rank == 0 else "", group=group)
    own, lowest = folder / f"{mark}{rank}", -1
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        own.touch()
    exchange.gather(rank, group)  # all have left their marks
    if own.exists():
        lowest = next(other for other in range(world) if (folder / f"{mark}{other}").exists())
    everyone = exchange.all_of(lowest, group)  # all have looked
    with suppress(OSError):
        own.unlink(missing_ok=True)
    return everyone
