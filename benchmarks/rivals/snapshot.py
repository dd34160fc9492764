"""Checkpoints in the style of PyTorch's DDP tutorial series: torch.save directly over snapshot.pt after each epoch.

It saves only weights and epoch; at the start it loads the snapshot if there is one, and continues with its epoch.
"""

from __future__ import annotations

import math
import os
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.rivals import common


def main() -> None:
    """Train for --steps, rounded up to whole epochs, and write the weights to --folder/final.pt."""
    options = common.options()
    recipe = common.recipe(options.recipe)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    train_set, _ = recipe.datasets(None)
    sampler: DistributedSampler[Any] = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=options.batch // dist.get_world_size(), sampler=sampler, drop_last=True)
    model = recipe.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=common.WEIGHT_DECAY)
    snapshot, first = os.path.join(options.folder, "snapshot.pt"), 0
    if os.path.exists(snapshot):
        saved = torch.load(snapshot)
        model.load_state_dict(saved["MODEL_STATE"])
        first = saved["EPOCHS_RUN"]
    ddp = DistributedDataParallel(model)
    for epoch in range(first, math.ceil(options.steps / len(loader))):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            recipe.loss(ddp, batch).backward()
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), common.CLIP)
            optimizer.step()
        if dist.get_rank() == 0:
            common.log(epoch * len(loader), 0.0)
            torch.save({"MODEL_STATE": model.state_dict(), "EPOCHS_RUN": epoch}, snapshot)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), os.path.join(options.folder, "final.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
