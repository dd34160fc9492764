"""Broadcast and gather plain values, without torch's object collectives, which unpickle what they receive.

A rank decodes received data in the same way as a checkpoint: with torch's loader for plain values and tensors, which
runs no code. A `group` contains all ranks and accepts CPU tensors; None is torch's default group.
"""

from __future__ import annotations

import atexit
import io
import time
from typing import Any

import torch
import torch.distributed as dist

# A thread of gloo frees the tensors of a message a moment after the rank has continued, and needs the GIL for it. If
# Python has begun to exit by then, the process aborts (torch 2.13, Python 3.11). atexit functions run before that.
atexit.register(time.sleep, 0.05)


def rank_and_world(group: dist.ProcessGroup | None = None) -> tuple[int, int]:
    """This process's rank and the world size: 0 and 1 without a process group."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


def broadcast(value: Any, source: int = 0, group: dist.ProcessGroup | None = None) -> Any:
    """Send the `value` of rank `source` to every rank: numbers, text, tensors, and tuples, lists and dicts of them."""
    rank, world = rank_and_world(group)
    if world == 1:
        return value
    data = _dump(value) if rank == source else memoryview(b"")
    size = torch.tensor([len(data)])
    dist.broadcast(size, source, group)
    data = data or memoryview(bytearray(int(size)))
    dist.broadcast(_tensor(data), source, group)
    return value if rank == source else _load(data)


def gather(value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Each rank's `value`, in the order of ranks, on rank 0; an empty list on other ranks.

    Accepts what `broadcast` accepts.
    """
    rank, world = rank_and_world(group)
    if world == 1:
        return [value]
    data = _dump(value)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(data)]), group)
    most = int(max(sizes))
    rows = [bytearray(most) for _ in sizes] if rank == 0 else []
    dist.gather(_tensor(bytearray(data).ljust(most, b"\0")), [_tensor(row) for row in rows] or None, 0, group)
    return [_load(row[: int(size)]) for row, size in zip(rows, sizes, strict=False)]


def all_of(value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Each rank's `value`, in the order of ranks, on every rank."""
    values: list[Any] = broadcast(gather(value, group), group=group)
    return values


def _dump(value: Any) -> memoryview:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getbuffer()


def _tensor(data: bytearray | memoryview) -> torch.Tensor:
    """A tensor in the same memory. The reverse conversion would need NumPy, which not every image with torch has."""
    return torch.frombuffer(data, dtype=torch.uint8)


def _load(data: bytearray | memoryview) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
