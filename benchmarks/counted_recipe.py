"""A recipe that counts: its samples are numbers, and its optimizer writes down which ones each step was made of."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

EPOCH, STOP_AT = 120, 4
_pending: list[int] = []


class Counting(torch.optim.SGD):
    """Writes the samples of each step it takes; after STOP_AT steps rank 0 is told to stop, if that was asked for."""

    taken = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        rank = os.environ["RANK"]
        with (Path(os.environ["COUNTED_FOLDER"]) / f"seen-{rank}.jsonl").open("a") as file:
            file.write(json.dumps(_pending) + "\n")
        self.taken += 1
        if self.taken == STOP_AT and rank == "0" and os.environ["COUNTED_STOP"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """What was not stepped on (the trainer's pass to settle its gradient buckets) does not count."""
        super().zero_grad(set_to_none)
        _pending.clear()


def model() -> nn.Module:
    """One weight, so that there is something to train."""
    return nn.Linear(1, 1)


def datasets(data: Path | None) -> tuple[TensorDataset, TensorDataset]:
    """The numbers from 0 on; held out are others."""
    return TensorDataset(torch.arange(EPOCH)), TensorDataset(torch.arange(EPOCH, EPOCH + 4))


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Remembers the batch's numbers until the optimizer steps."""
    (numbers,) = batch
    if torch.is_grad_enabled():
        _pending.extend(numbers.tolist())
    return model(numbers.float()[:, None] / EPOCH).square().mean()


def optimizer(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """The one that counts."""
    return Counting(model.parameters(), lr=lr)
