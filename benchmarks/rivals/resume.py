"""Stopping in the middle of an epoch and going on, as Accelerate's and torchdata's own documentation shows it.

Both train on the numbers 0 to EPOCH - 1, shuffled; `before` is the world size of the run to go on from, None at first.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset

EPOCH, BATCH, STOP_AT = 120, 12, 4


def accelerate_rank(folder: str, before: int | None) -> None:
    """`save_state` and stop, or `load_state` and `skip_first_batches`; everything else at its default."""
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    accelerator = Accelerator(cpu=True)
    set_seed(0)
    batch = BATCH // accelerator.num_processes
    loader = torch.utils.data.DataLoader(TensorDataset(torch.arange(EPOCH)), batch_size=batch, shuffle=True)
    model = torch.nn.Linear(1, 1)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    left: Any = loader
    if before is not None:
        accelerator.load_state(f"{folder}/from/state")
        left = accelerator.skip_first_batches(loader, STOP_AT)
    for step, (numbers,) in enumerate(left, 1):
        accelerator.backward(model(numbers.float()[:, None] / EPOCH).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        _saw(folder, accelerator.process_index, numbers)
        if before is None and step == STOP_AT:
            accelerator.save_state(f"{folder}/state")
            break


def torchdata_rank(folder: str, before: int | None) -> None:
    """StatefulDataLoader over a StatefulDistributedSampler, each rank's state in a file of its own."""
    from torchdata.stateful_dataloader import StatefulDataLoader
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    numbers = TensorDataset(torch.arange(EPOCH))
    sampler = StatefulDistributedSampler(numbers, num_replicas=world, rank=rank, shuffle=True, seed=0)
    loader = StatefulDataLoader(numbers, batch_size=BATCH // world, sampler=sampler)
    if before is not None:
        # A rank that was not there before takes the state of one that was.
        loader.load_state_dict(torch.load(f"{folder}/from/loader-{rank % before}.pt", weights_only=False))
    for step, (taken,) in enumerate(loader, 1):
        _saw(folder, rank, taken)
        if before is None and step == STOP_AT:
            torch.save(loader.state_dict(), f"{folder}/loader-{rank}.pt")
            break


def _saw(folder: str, rank: int, numbers: torch.Tensor) -> None:
    with Path(folder, f"seen-{rank}.jsonl").open("a") as file:
        file.write(json.dumps(numbers.tolist()) + os.linesep)
