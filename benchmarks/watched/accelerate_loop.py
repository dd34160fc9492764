"""Accelerate, as its documentation shows it, with batches accumulated in pairs."""

import torch
from accelerate import Accelerator
from own import STEPS, Slow, net, own
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
world = accelerator.num_processes
loader = DataLoader(Slow(STEPS * 8 * world), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses, step = [], 0
for x, y in loader:
    with accelerator.accumulate(model):
        loss = mse_loss(model(x), y)
        accelerator.backward(loss)
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        if accelerator.sync_gradients:
            step += 1
            own.stepped(step, sum(losses) / len(losses))
            losses = []
accelerator.end_training()
