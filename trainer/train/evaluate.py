"""Evaluation on all ranks; counts every held-out sample exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset

from muster import exchange
from muster.data import to_device

from ..recipe import compute_loss, compute_metrics, take_batches
from .strategy import Strategy


@torch.no_grad()
def evaluate(strategy: Strategy, held_out: Dataset[Any], rank: int) -> tuple[dict[str, float], int]:
    """Mean loss and metrics of the whole held-out set, the same on every rank, and the number of samples counted.

    Each rank takes every world-th sample, so the counts may differ; the ranks add up sums and counts and pad nothing.
    This uses the bare model: DDP's forward would wait for ranks that have one batch less.
    """
    device, recipe = strategy.group.device, strategy.recipe
    size = len(held_out)  # type: ignore[arg-type]
    names, sums = ["loss"], torch.zeros(2, dtype=torch.float64)
    strategy.model.eval()
    mine = list(_in_batches(list(range(rank, size, strategy.world)), _batch_size(strategy)))
    for indices, batch in zip(mine, take_batches(recipe, held_out, mine, device), strict=True):
        values = _values(strategy, to_device(batch, device))
        names = ["loss", *sorted(values.keys() - {"loss"})]
        row = torch.tensor([len(indices), *(values[name] * len(indices) for name in names)], dtype=torch.float64)
        sums = row if len(sums) != len(row) else sums + row
    strategy.model.train()
    return _add_up(names, sums)


def _values(strategy: Strategy, batch: Any) -> dict[str, float]:
    recipe = strategy.recipe
    with strategy.autocast():
        loss = compute_loss(recipe, strategy.model, batch)
        per_sample = compute_metrics(recipe, strategy.model, batch)
    return {"loss": float(loss), **{name: float(value.double().mean()) for name, value in per_sample.items()}}


def _add_up(names: list[str], sums: torch.Tensor) -> tuple[dict[str, float], int]:
    # A rank without a single held-out sample does not know the metrics' names: ranks exchange them with the sums.
    rows = exchange.broadcast(exchange.gather((names, sums.tolist())))
    all_names = max((row_names for row_names, _ in rows), key=len)
    samples = sum(row[0] for _, row in rows)
    full_rows = [row for row_names, row in rows if len(row_names) == len(all_names)]
    means = {name: sum(row[1 + i] for row in full_rows) / samples for i, name in enumerate(all_names)}
    return means, int(samples)


def _batch_size(strategy: Strategy) -> int:
    share = max(1, strategy.config.batch // strategy.world)
    return min(share, strategy.config.micro_batch) if strategy.config.micro_batch else share


def _in_batches(indices: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(indices), size):
        yield indices[start : start + size]
