"""A hand-written DDP loop over images, as they are written: a small convolutional network, AdamW, a progress line.

It knows of its speed: every ten steps it prints the time. At its end it notes what its weights and generators are.
"""

import hashlib
import json
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, steps = dist.get_rank(), int(os.environ["STEPS"])
torch.manual_seed(0)
random.seed(0)
images = TensorDataset(torch.randn(2048, 1, 16, 16), torch.randint(0, 10, (2048,)))
model = DistributedDataParallel(
    nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(2304, 10),
    )
)
optimizer, criterion = torch.optim.AdamW(model.parameters()), nn.CrossEntropyLoss()
sampler = DistributedSampler(images)
loader = DataLoader(images, batch_size=32, sampler=sampler)
step = epoch = 0
while step < steps:
    sampler.set_epoch(epoch)
    epoch += 1
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % 10 == 0:
            print(json.dumps({"t": time.time(), "step": step}), flush=True)
        if step == steps:
            break
state = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
state += [torch.get_rng_state().numpy().tobytes(), repr(random.getstate()).encode(), json.dumps(loss.item()).encode()]
with open(os.path.join(os.environ["MUSTER_RUN_DIR"], f"seen-{rank}.json"), "w") as file:
    json.dump(hashlib.sha256(b"".join(state)).hexdigest(), file)
dist.destroy_process_group()
