"""What record.py records: a plain DDP script that loads its checkpoint, and whose rank 1 kills itself once."""

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, LAST, KILLED = 120, Path("last.pt"), Path("killed")

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
step = 0
if LAST.exists():
    saved = torch.load(LAST)
    step = saved["step"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
while step < STEPS:
    x = torch.randn(64, 16)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if rank == 1 and step == 70 and not KILLED.exists():
        KILLED.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    if rank == 0 and step % 20 == 0:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, "last.tmp")
        os.replace("last.tmp", LAST)
        if step % 60 == 0:
            print(f"step {step} of {STEPS}: loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
