"""A recipe of your own: it learns to tell apart three spirals of points. Copy it and change what differs.

    torchrun --nproc-per-node 2 -m muster.trainer --recipe examples/my_recipe.py

Every rank runs this file. The weights start from the run's seed; the data must be the same on every rank, so this file
draws its data with a fixed seed.
"""

import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

# This recipe's defaults for trainer options; the command line overrides them. A plain dict: it is read without running
# the file.
DEFAULTS = {"steps": 400, "batch": 96, "lr": 0.05}
ARMS = 3


def model() -> nn.Module:
    """Points (batch, 2) in, arm scores (batch, ARMS) out. Muster moves the model to the device and wraps it."""
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, ARMS))


def datasets(data: Path | None) -> tuple[TensorDataset, TensorDataset]:
    """Training and held-out set; an item is a point (2,) and its arm (). `data`, the --data folder, is not needed."""
    draw = torch.Generator().manual_seed(0)
    arm = torch.arange(1800) % ARMS
    way = torch.rand(1800, generator=draw)  # 0 in the middle, 1 at the end of the arm
    angle = 4 * way + 2 * math.pi / ARMS * arm + 0.1 * torch.randn(1800, generator=draw)
    points = way[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    return TensorDataset(points[:1500], arm[:1500]), TensorDataset(points[1500:], arm[1500:])


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """The mean over the batch, a scalar. The batch is on the model's device, collated by torch's default_collate."""
    points, arm = batch
    return F.cross_entropy(model(points), arm)


def optimizer(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Optional; without it, AdamW is used. The schedule scales `lr`, starting from this value."""
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True)


def metrics(model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
    """Optional; returns one value for each sample, shape (batch,), so that every held-out sample counts once."""
    points, arm = batch
    return {"accuracy": (model(points).argmax(dim=1) == arm).float()}
