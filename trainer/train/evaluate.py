"""Evaluation on all ranks; every held-out sample is counted exactly once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset

from muster import exchange
from muster.data import to_device

from ..recipe import compute_loss, compute_metrics, take_batches
from .step import Stepper


@torch.no_grad()
def evaluate(stepper: Stepper, held_out: Dataset[Any], rank: int) -> tuple[dict[str, float], int]:
    """Mean loss and metrics of the whole held-out set, the same on every rank, and the number of samples counted.

    With n data-parallel ranks, each rank takes every n-th sample; the ranks add up sums and counts. A rank with one
    batch fewer passes an extra batch through the model without counting it: if the model is sharded, its peers wait for
    that pass. This uses the bare model, because DDP's forward would broadcast buffers for nothing.
    """
    device, recipe = stepper.group.device, stepper.recipe
    size = len(held_out)  # type: ignore[arg-type]
    names, sums = ["loss"], torch.zeros(2, dtype=torch.float64)
    stepper.model.eval()
    mesh, per_batch = stepper.mesh, _batch_size(stepper)
    mine = list(_in_batches(list(range(mesh.data_rank(rank), size, mesh.data_world)), per_batch))
    passes = math.ceil(math.ceil(size / mesh.data_world) / per_batch)
    batches = [*mine, *[[0]] * (passes - len(mine))]
    for index, batch in enumerate(take_batches(recipe, held_out, batches, device)):
        values = _values(stepper, to_device(batch, device))
        names = ["loss", *sorted(values.keys() - {"loss"})]
        count = len(mine[index]) if index < len(mine) and mesh.counts(rank) else 0
        row = torch.tensor([count, *(values[name] * count for name in names)], dtype=torch.float64)
        sums = row if len(sums) != len(row) else sums + row
    stepper.model.train()
    return _add_up(names, sums)


def _values(stepper: Stepper, batch: Any) -> dict[str, float]:
    recipe = stepper.recipe
    with stepper.autocast():
        loss = compute_loss(recipe, stepper.model, batch)
        per_sample = compute_metrics(recipe, stepper.model, batch)
    return {"loss": float(loss), **{name: float(value.double().mean()) for name, value in per_sample.items()}}


def _add_up(names: list[str], sums: torch.Tensor) -> tuple[dict[str, float], int]:
    rows = exchange.all_of(sums.tolist())
    samples, *totals = (sum(column) for column in zip(*rows, strict=True))
    return {name: total / samples for name, total in zip(names, totals, strict=True)}, int(samples)


def _batch_size(stepper: Stepper) -> int:
    share = max(1, stepper.config.batch // stepper.mesh.data_world)
    return min(share, stepper.config.micro_batch) if stepper.config.micro_batch else share


def _in_batches(indices: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(indices), size):
        yield indices[start : start + size]
