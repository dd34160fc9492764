"""A small net whose training is bit-identical after any resume, with dropout, which uses the GPU's random state.

Each step takes a while, so that a check can kill the run in the middle.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

DEFAULTS = {"batch": 64, "lr": 0.003}
PAUSE_S = 0.01

# Only a warning for an operation that cannot be deterministic: the check compares the final weights.
torch.use_deterministic_algorithms(True, warn_only=True)


def model() -> nn.Module:
    """Images (batch, 1, 8, 8) in, scores (batch, 10) out. No pooling: its gradient is not deterministic on GPUs."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16 * 2 * 2, 10),
    )


def datasets(data: Path | None) -> tuple[TensorDataset, TensorDataset]:
    """1,024 images to train on and 64 held-out ones; the class is the brightest of ten positions."""
    draw = torch.Generator().manual_seed(7)
    images = torch.rand(1088, 1, 8, 8, generator=draw)
    classes = images.flatten(1)[:, :10].argmax(1)
    return TensorDataset(images[:1024], classes[:1024]), TensorDataset(images[1024:], classes[1024:])


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross entropy."""
    time.sleep(PAUSE_S)
    images, classes = batch
    return F.cross_entropy(model(images).float(), classes)
