"""A bare DDP loop in the style of PyTorch's own tutorial: it prints a loss; no metrics, checkpoints or evaluation."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.rivals import common


def main() -> None:
    """Train for --steps on the ranks that torchrun started."""
    options = common.options()
    recipe = common.recipe(options.recipe)
    device = common.device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    train_set, _ = recipe.datasets(None)
    sampler: DistributedSampler[Any] = DistributedSampler(train_set)
    share, pin = options.batch // dist.get_world_size(), device.type == "cuda"
    loader = DataLoader(train_set, batch_size=share, sampler=sampler, drop_last=True, pin_memory=pin)
    model = DistributedDataParallel(common.model(options).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=common.WEIGHT_DECAY, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, common.schedule(options.steps))
    step = 0
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            loss = recipe.loss(model, [part.to(device, non_blocking=True) for part in batch])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), common.CLIP)
            optimizer.step()
            scheduler.step()
            step += 1
            if dist.get_rank() == 0 and (step == 1 or step % options.log_every == 0):
                common.log(step, loss.item())
            if step == options.steps:
                dist.destroy_process_group()
                return


if __name__ == "__main__":
    main()
