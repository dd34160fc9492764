"""Gradients of four batches go into a step."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from own import STEPS, Slow, net, own
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

EVERY = 4
dist.init_process_group("gloo")
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
running, step = 0.0, 0
for at, (x, y) in enumerate(DataLoader(Slow(STEPS * EVERY * 2), batch_size=2), 1):
    last = at % EVERY == 0
    with nullcontext() if last else model.no_sync():
        loss = mse_loss(model(x), y) / EVERY
        loss.backward()
    running += loss.item()
    if last:
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        own.stepped(step, running)
        running = 0.0
dist.destroy_process_group()
