"""A recipe whose steps mostly sleep: a run that only has to keep running leaves the cores to other tests."""

import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

DEFAULTS = {"batch": 12}


def model() -> nn.Module:
    """Numbers (batch, 2) in, one number (batch, 1) out."""
    return nn.Linear(2, 1)


def datasets(data: Path | None) -> tuple[TensorDataset, TensorDataset]:
    """Training and held-out set; an item is two numbers."""
    numbers = torch.rand(600, 2, generator=torch.Generator().manual_seed(0))
    return TensorDataset(numbers[:480]), TensorDataset(numbers[480:])


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """The mean over the batch, a scalar."""
    time.sleep(0.1)
    return model(batch[0]).square().mean()
