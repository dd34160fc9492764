"""The loop of recipe `text` with FSDP2 in plain torch, and with Lightning Fabric: the first argument is which.

Both cut each block, and then the rest of the model as one, as the trainer does. Accelerate has no FSDP2 on CPUs: there,
it leaves its plugin out without a word, and trains with DDP.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.rivals import common


def cut(model: Any, mesh: Any) -> nn.Module:
    """The model, cut along a mesh of one axis."""
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    whole: nn.Module = model
    return whole


def main() -> None:
    """Train for --steps on the ranks that torchrun started."""
    with_fabric = sys.argv.pop(1) == "fabric"
    options = common.options()
    recipe = common.recipe(options.recipe)
    world, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    torch.manual_seed(0)
    train_set, _ = recipe.datasets(None)
    share = options.batch // world
    if with_fabric:
        strategy = ModelParallelStrategy(
            lambda model, mesh: cut(model, mesh["data_parallel"]), data_parallel_size=world, tensor_parallel_size=1
        )
        fabric = Fabric(accelerator="cpu", devices=here, num_nodes=world // here, strategy=strategy)
        fabric.launch()
        loader: Any = fabric.setup_dataloaders(DataLoader(train_set, batch_size=share, shuffle=True, drop_last=True))
        model: Any = fabric.setup(common.model(options))
        optimizer: Any = fabric.setup_optimizers(_optimizer(model, options.lr))
        backward, clip = fabric.backward, lambda: fabric.clip_gradients(model, optimizer, max_norm=common.CLIP)
    else:
        dist.init_process_group("gloo")
        sampler: Any = DistributedSampler(train_set)
        loader = DataLoader(train_set, batch_size=share, sampler=sampler, drop_last=True)
        model = cut(common.model(options), init_device_mesh("cpu", (world,)))
        optimizer = _optimizer(model, options.lr)
        backward, clip = _backward, lambda: nn.utils.clip_grad_norm_(model.parameters(), common.CLIP)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, common.schedule(options.steps))
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, batch in enumerate(itertools.islice(batches, options.steps), 1):
        optimizer.zero_grad()
        loss = recipe.loss(model, batch)
        backward(loss)
        clip()
        optimizer.step()
        scheduler.step()
        if dist.get_rank() == 0 and (step == 1 or step % options.log_every == 0):
            common.log(step, loss.item())


def _optimizer(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=common.WEIGHT_DECAY, fused=True)


def _backward(loss: torch.Tensor) -> None:
    loss.backward()


if __name__ == "__main__":
    main()
