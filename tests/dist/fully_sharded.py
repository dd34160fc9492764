"""A script that shards its model with FSDP2: it trains with and without a stop, and compares both results."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

import muster


def train(folder, steps):
    """Train up to `steps` from the folder's newest checkpoint; return the first step and the weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 1))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training = muster.Training(folder, save_every=3, model=model, optimizer=optimizer)
    begin = training.step
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
    for inputs, targets in training.batches(TensorDataset(x, x.sum(1, keepdim=True)), batch=6, steps=steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return begin, [parameter.full_tensor() for parameter in model.parameters()]


dist.init_process_group("gloo")
_, whole = train(f"{sys.argv[1]}/whole", 8)
train(f"{sys.argv[1]}/stopped", 4)
begin, again = train(f"{sys.argv[1]}/stopped", 8)
same = all(torch.equal(one, other) for one, other in zip(whole, again, strict=True))
if dist.get_rank() == 0:
    print(f"continued at {begin}, the same to the last bit: {same}")
dist.destroy_process_group()
