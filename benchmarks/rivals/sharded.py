"""The loop of recipe `text` with FSDP2 in plain torch, with Lightning Fabric and with Accelerate, a step at a time.

All cut each block, and then the rest of the model as one, as the trainer does. On CPUs Accelerate leaves its plugin for
FSDP2 out without a word, and trains with DDP; here its state is set to what it has on GPUs, so that the plugin counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.rivals import common
from trainer.recipes import text


def plain(steps: int) -> Iterator[None]:
    """Train in plain torch on the ranks of the process group; each `next` is a step."""
    train_set, _ = text.datasets(None)
    sampler: Any = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=_share(), sampler=sampler, drop_last=True)
    model = _cut(text.model(), init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = _optimizer(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, common.schedule(steps))
    for step, batch in enumerate(_endless(loader)):
        optimizer.zero_grad()
        loss = text.loss(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), common.CLIP)
        optimizer.step()
        scheduler.step()
        _note(step, loss)
        yield


def fabric(steps: int) -> Iterator[None]:
    """The same with Lightning Fabric, as its page about FSDP2 shows it."""
    world = dist.get_world_size()
    strategy = ModelParallelStrategy(
        lambda model, mesh: _cut(model, mesh["data_parallel"]), data_parallel_size=world, tensor_parallel_size=1
    )
    runs = Fabric(accelerator="cpu", devices=world, strategy=strategy)
    runs.launch()
    train_set, _ = text.datasets(None)
    loader: Any = runs.setup_dataloaders(DataLoader(train_set, batch_size=_share(), shuffle=True, drop_last=True))
    model: Any = runs.setup(text.model())
    optimizer: Any = runs.setup_optimizers(_optimizer(model))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, common.schedule(steps))
    for step, batch in enumerate(_endless(loader)):
        optimizer.zero_grad()
        loss = text.loss(model, batch)
        runs.backward(loss)
        runs.clip_gradients(model, optimizer, max_norm=common.CLIP)
        optimizer.step()
        scheduler.step()
        _note(step, loss)
        yield


def accelerate(steps: int) -> Iterator[None]:
    """The same with Accelerate, as its page about FSDP2 shows it, but for the device (see above)."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Block"],
        cpu_ram_efficient_loading=False,
    )
    runs: Any = Accelerator(cpu=True, fsdp_plugin=plugin, step_scheduler_with_optimizer=False)
    runs.state.distributed_type, runs.state.fsdp_plugin = DistributedType.FSDP, plugin
    train_set, _ = text.datasets(None)
    model: Any = text.model()
    loader: Any = DataLoader(train_set, batch_size=_share(), shuffle=True, drop_last=True)
    model, optimizer, loader = runs.prepare(model, _optimizer(model), loader)
    assert isinstance(model, FSDPModule), "Accelerate has not cut the model"
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, common.schedule(steps))
    for step, batch in enumerate(_endless(loader)):
        optimizer.zero_grad()
        loss = text.loss(model, batch)
        runs.backward(loss)
        runs.clip_grad_norm_(model.parameters(), common.CLIP)
        optimizer.step()
        scheduler.step()
        _note(step, loss)
        yield


def _share() -> int:
    return int(text.DEFAULTS["batch"]) // dist.get_world_size()


def _endless(loader: Any) -> Iterator[Any]:
    return itertools.chain.from_iterable(itertools.repeat(loader))


def _cut(model: Any, mesh: Any) -> nn.Module:
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    whole: nn.Module = model
    return whole


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    lr = float(text.DEFAULTS["lr"])
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=common.WEIGHT_DECAY, fused=True)


def _note(step: int, loss: torch.Tensor) -> None:
    if dist.get_rank() == 0 and step % 10 == 0:
        common.log(step, loss.item())
