"""Values that ranks give each other. torch's object collectives unpickle what arrives, so none of them is used here.

What arrives is read as checkpoints are, with torch's loader for plain values and tensors, which runs nothing.
"""

from __future__ import annotations

import io
from typing import Any

import torch
import torch.distributed as dist


def broadcast(value: Any) -> Any:
    """Rank 0's `value` on every rank: numbers, text, tensors, and tuples, lists and dictionaries of them."""
    first = dist.get_rank() == 0
    data = _written(value) if first else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([len(data)])
    dist.broadcast(size, 0)
    data = data if first else torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(data, 0)
    return value if first else _read(data)


def gather(value: Any) -> list[Any]:
    """Each rank's `value`, by rank, on rank 0; an empty list elsewhere. Values as for `broadcast`."""
    data = _written(value)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(data)]))
    padded = torch.zeros(int(max(sizes)), dtype=torch.uint8)
    padded[: len(data)] = data
    rows = [torch.empty_like(padded) for _ in sizes] if dist.get_rank() == 0 else None
    dist.gather(padded, rows)
    return [_read(row[: int(size)]) for row, size in zip(rows or [], sizes, strict=False)]


def _written(value: Any) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(value, file)
    return torch.frombuffer(file.getbuffer(), dtype=torch.uint8)


def _read(data: torch.Tensor) -> Any:
    return torch.load(io.BytesIO(data.numpy().tobytes()), map_location="cpu", weights_only=True)
