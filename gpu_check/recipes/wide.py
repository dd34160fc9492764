"""A net that keeps a GPU busy for some milliseconds per step. It writes the same file as recipe `inspected`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from gpu_check.recipes import inspected

DEFAULTS = {"batch": 128, "lr": 1e-3}
loss = inspected.loss


def model() -> nn.Module:
    """Images (batch, 3, 32, 32) in, scores (batch, 10) out."""
    layers: list[nn.Module] = []
    for before, after in ((3, 128), (128, 128), (128, 256), (256, 256)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def datasets(data: Path | None) -> tuple[TensorDataset, TensorDataset]:
    """4,096 random images to train on, 256 held-out ones."""
    draw = torch.Generator().manual_seed(3)
    images = torch.rand(4352, 3, 32, 32, generator=draw)
    classes: Tensor = torch.randint(10, (4352,), generator=draw)
    return TensorDataset(images[:4096], classes[:4096]), TensorDataset(images[4096:], classes[4096:])
