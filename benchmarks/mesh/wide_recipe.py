"""A recipe of 100 million weights in twelve blocks, for the bytes that a rank has of them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.nn import functional as F
from torch.utils.data import TensorDataset

DEFAULTS = {"steps": 2, "batch": 4, "lr": 1e-4, "warmup": 0, "eval_every": 0, "checkpoint_every": 0}
WIDTH, BLOCKS = 1024, 12


class Block(nn.Module):
    """Two layers, added to their input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


def model() -> nn.Module:
    """Twelve blocks of two layers; 100.7 M weights."""
    return nn.Sequential(*(Block() for _ in range(BLOCKS)))


def tensor_plan(model: nn.Module) -> dict[str, ParallelStyle]:
    """Each block's width is shared."""
    return {"*.wide": ColwiseParallel(), "*.narrow": RowwiseParallel()}


def datasets(data: Path | None) -> tuple[TensorDataset, TensorDataset]:
    """Noise: only the memory counts."""
    return TensorDataset(torch.randn(16, WIDTH)), TensorDataset(torch.randn(4, WIDTH))


def loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    """The mean square of what comes out."""
    out: Tensor = model(batch[0])
    return out.square().mean()
