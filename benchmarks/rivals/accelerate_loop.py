"""The loop of bare.py, with Accelerate."""

from __future__ import annotations

import itertools

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

from benchmarks.rivals import common


def main() -> None:
    """Train for --steps on the ranks that torchrun started."""
    options = common.options()
    recipe = common.recipe(options.recipe)
    on_gpu = common.device().type == "cuda"
    # Otherwise its scheduler would make a step for every process.
    accelerator = Accelerator(cpu=not on_gpu, step_scheduler_with_optimizer=False)
    set_seed(0)
    train_set, _ = recipe.datasets(None)
    share = options.batch // accelerator.num_processes
    loader = DataLoader(train_set, batch_size=share, shuffle=True, drop_last=True, pin_memory=on_gpu)
    model = common.model(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=common.WEIGHT_DECAY, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, common.schedule(options.steps))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    step = 0
    for _ in itertools.count():
        for batch in loader:
            optimizer.zero_grad()
            loss = recipe.loss(model, batch)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), common.CLIP)
            optimizer.step()
            scheduler.step()
            step += 1
            if accelerator.is_main_process and (step == 1 or step % options.log_every == 0):
                common.log(step, loss.item())
            if step == options.steps:
                accelerator.end_training()
                return


if __name__ == "__main__":
    main()
