"""Recipe `digits`: classify 8x8 scans of handwritten digits with a small convolutional net.

The data ships with Muster (`digits.csv.gz`, see DIGITS.md), so this trains without a network connection. The net has no
dropout and no batch norm, so its loss depends only on the global batch, not on the number of ranks that share it.
"""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from muster.errors import Refused

DEFAULTS = {"steps": 600, "batch": 96, "lr": 5e-3}
HELD_OUT_PER_CLASS = 36  # 360 of 1,797: one in five


def model() -> nn.Module:
    """A net of 76,522 weights: input images (batch, 1, 8, 8) with values 0..1, output class scores (batch, 10)."""
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    # CPUs, and GPUs with bf16 or fp16, compute convolutions faster in this layout (PyTorch: "Channels Last Memory
    # Format").
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def datasets(data: Path | None) -> tuple[TensorDataset, TensorDataset]:
    """1,437 digits to train on and 360 held-out ones. An item: image (1, 8, 8) float32, class () int64."""
    if data is not None:
        raise Refused(f"recipe digits: it has its own data, but got --data {data}", "leave out --data")
    text = gzip.decompress(Path(__file__).with_name("digits.csv.gz").read_bytes()).decode()
    rows = torch.tensor([int(value) for value in text.replace("\n", ",").split(",")[:-1]]).view(-1, 65)
    images, classes = rows[:, :64].float().div(16).view(-1, 1, 8, 8), rows[:, 64]
    train, held_out = _split(classes.tolist())
    return TensorDataset(images[train], classes[train]), TensorDataset(images[held_out], classes[held_out])


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross entropy, in nats per digit."""
    images, classes = batch
    return F.cross_entropy(model(images).float(), classes)


def metrics(model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """`accuracy`: 1 for a correct class, else 0; shape (batch,)."""
    images, classes = batch
    return {"accuracy": (model(images).argmax(1) == classes).float()}


def _split(classes: list[int]) -> tuple[list[int], list[int]]:
    """The indices to train on and to hold out.

    A fixed seed selects the same number of held-out digits in each class.
    """
    # Python guarantees the sequence of random() for a seed in every version, but not that of shuffle() or sample().
    draw = random.Random(0)
    shuffled = sorted((draw.random(), index) for index in range(len(classes)))
    held_out: list[int] = []
    for label in range(10):
        held_out += [index for _, index in shuffled if classes[index] == label][:HELD_OUT_PER_CLASS]
    return sorted(set(range(len(classes))) - set(held_out)), sorted(held_out)
