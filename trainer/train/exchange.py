"""Broadcast and gather of plain values, without torch's object collectives, which unpickle what they receive.

A rank reads what it receives as it reads a checkpoint: with torch's loader for plain values and tensors, which runs
no code.
"""

from __future__ import annotations

import io
from typing import Any

import torch
import torch.distributed as dist


def broadcast(value: Any) -> Any:
    """Rank 0's `value` on every rank: numbers, text, tensors, and tuples, lists and dictionaries of them."""
    first = dist.get_rank() == 0
    data = _dump(value) if first else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([len(data)])
    dist.broadcast(size, 0)
    data = data if first else torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(data, 0)
    return value if first else _load(data)


def gather(value: Any) -> list[Any]:
    """Each rank's `value`, by rank, on rank 0; an empty list elsewhere. Accepts the values that `broadcast` accepts."""
    data = _dump(value)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(data)]))
    padded = torch.zeros(int(max(sizes)), dtype=torch.uint8)
    padded[: len(data)] = data
    rows = [torch.empty_like(padded) for _ in sizes] if dist.get_rank() == 0 else None
    dist.gather(padded, rows)
    return [_load(row[: int(size)]) for row, size in zip(rows or [], sizes, strict=False)]


def _dump(value: Any) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(value, file)
    return torch.frombuffer(file.getbuffer(), dtype=torch.uint8)


def _load(data: torch.Tensor) -> Any:
    return torch.load(io.BytesIO(data.numpy().tobytes()), map_location="cpu", weights_only=True)
