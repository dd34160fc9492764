"""One rank of a plain training loop: with `muster.Training`, and as tutorials write it, with torch.save by hand."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import muster
from muster.data import StreamSampler, batches

SAMPLES, BATCH, SAVE_EVERY = 120, 12, 5


class Net(nn.Module):
    """Dropout, more than one bucket of gradients, and layers that are not registered in the order of their use."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.middle, self.into = nn.Linear(600, 1), nn.Linear(600, 600), nn.Linear(8, 600)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(torch.relu(self.drop(self.middle(torch.relu(self.into(x))))))
        return out


def build() -> tuple[TensorDataset, nn.Module, torch.optim.Optimizer]:
    """Samples with their numbers, a DDP model (a bare one if this is the only process), and its optimizer."""
    torch.set_num_threads(1)  # torch was imported before the fork, and with it the count of the machine's cores
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(SAMPLES), torch.randn(SAMPLES, 8), torch.randn(SAMPLES, 1))
    model = DistributedDataParallel(Net())
    return data, model, torch.optim.AdamW(model.parameters())


def ours(folder: str, name: str, steps: int) -> None:
    """Train to `steps` with the library; lines `step sample sample ...` and the weights' hash go to `name`-rank."""
    data, model, optimizer = build()
    training = muster.Training(Path(folder) / "training", save_every=SAVE_EVERY, model=model, optimizer=optimizer)
    with _told(folder, name) as tell:
        for numbers, x, y in training.batches(data, batch=BATCH, steps=steps):
            _step(model, optimizer, x, y)
            tell(training.step + 1, numbers)
        tell.end(model)


def by_hand(folder: str, name: str, steps: int) -> None:
    """The same as tutorials write it: DistributedSampler, and torch.save of rank 0 after every few steps."""
    data, model, optimizer = build()
    assert isinstance(model, DistributedDataParallel)
    sampler: DistributedSampler[Any] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH // dist.get_world_size(), sampler=sampler)
    path, step, epoch = Path(folder) / "last.pt", 0, 0
    if path.exists():
        state = torch.load(path)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, epoch = state["step"], state["epoch"]
    with _told(folder, name) as tell:
        while step < steps:
            sampler.set_epoch(epoch)
            for numbers, x, y in loader:
                _step(model, optimizer, x, y)
                step += 1
                tell(step, numbers)
                if dist.get_rank() == 0 and step % SAVE_EVERY == 0:
                    parts = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save({**parts, "step": step, "epoch": epoch}, path)
                if step == steps:
                    break
            epoch += 1
        tell.end(model)


def pairs(folder: str, count: int, steps: int) -> None:
    """Seconds of `steps` steps with the library (a checkpoint every 500, as usual) and without, in turns, on rank 0.

    Within a pair the two take turns after every eighth step, so that what else the machine does falls on both.
    """
    data, model, optimizer = build()
    training = muster.Training(Path(folder) / "training", save_every=500, model=model, optimizer=optimizer)
    rank, world = dist.get_rank(), dist.get_world_size()
    sampler = StreamSampler(SAMPLES, batch=BATCH, world=world, rank=rank)
    bare, stream = batches(data, sampler), training.batches(data, batch=BATCH, steps=10**9)

    def block(source: Iterator[Any], log: Callable[..., None]) -> float:
        dist.barrier()
        began = time.perf_counter()
        for _ in range(8):
            _, x, y = next(source)
            log(loss=_step(model, optimizer, x, y))
        dist.barrier()
        return time.perf_counter() - began

    lines = []
    for pair in range(count + 1):
        ours = theirs = 0.0
        for turn in range(steps // 8):
            if (pair + turn) % 2:
                ours += block(stream, training.log)
            theirs += block(bare, lambda loss: None)
            if not (pair + turn) % 2:
                ours += block(stream, training.log)
        if pair:  # the first is to warm up
            lines.append(f"{ours} {theirs}\n")
    if rank == 0:
        (Path(folder) / "times").write_text("".join(lines))


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


class _told:
    """This rank's file; each line is whole, so a kill cuts off none."""

    def __init__(self, folder: str, name: str) -> None:
        path = Path(folder) / f"{name}-{os.environ['RANK']}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __enter__(self) -> _told:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def __call__(self, step: int, numbers: torch.Tensor) -> None:
        os.write(self._file, f"{step} {' '.join(map(str, numbers.tolist()))}\n".encode())

    def end(self, model: nn.Module) -> None:
        weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
        os.write(self._file, f"weights {hashlib.sha256(weights).hexdigest()}\n".encode())
