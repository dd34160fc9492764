"""Mixed precision with a GradScaler; some gradients overflow, and their steps are skipped."""

import torch
import torch.distributed as dist
from own import STEPS, Slow, net, own
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
model = DistributedDataParallel(net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=7)
step = 0
for at, (x, y) in enumerate(DataLoader(Slow(STEPS * 4), batch_size=4)):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = mse_loss(model(x).float(), y)
    scaled = scaler.scale(loss if at % 9 else loss * float("inf"))
    scaled.backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() < before:
        own.skipped += 1
    else:
        step += 1
        own.stepped(step, loss)
dist.destroy_process_group()
