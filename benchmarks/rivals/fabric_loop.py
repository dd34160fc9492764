"""The loop of bare.py, with Lightning Fabric."""

from __future__ import annotations

import itertools
import os

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader

from benchmarks.rivals import common


def main() -> None:
    """Train for --steps on the ranks that torchrun started."""
    options = common.options()
    recipe = common.recipe(options.recipe)
    world = int(os.environ["WORLD_SIZE"])
    on_gpu, here = common.device().type == "cuda", int(os.environ["LOCAL_WORLD_SIZE"])
    kind = "cuda" if on_gpu else "cpu"
    fabric = Fabric(accelerator=kind, devices=here, num_nodes=world // here, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(0)
    train_set, _ = recipe.datasets(None)
    loader = fabric.setup_dataloaders(
        DataLoader(train_set, batch_size=options.batch // world, shuffle=True, drop_last=True, pin_memory=on_gpu)
    )
    model = common.model(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=common.WEIGHT_DECAY, fused=True)
    model, optimizer = fabric.setup(model, optimizer)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, common.schedule(options.steps))
    step = 0
    for _ in itertools.count():
        for batch in loader:
            optimizer.zero_grad()
            loss = recipe.loss(model, batch)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=common.CLIP)
            optimizer.step()
            scheduler.step()
            step += 1
            if fabric.global_rank == 0 and (step == 1 or step % options.log_every == 0):
                common.log(step, loss.item())
            if step == options.steps:
                return


if __name__ == "__main__":
    main()
