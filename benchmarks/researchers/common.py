"""What all these researchers have: a small model, batches, and lines that can be compared.

A line `result RANK SCRIPT ...` is the same by hand and under Muster. `truth` is what rank 0 knows of its own training:
the loss of each step, and the seconds at which the first asked for gradients and each ended.
"""

import atexit
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
LOSSES, TIMES, MORE, NAME = [], [], {}, [""]


def line(*words):
    """Print in one piece: other ranks may share the file."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def result(*words):
    """What the researcher would compare with the same training by hand."""
    line("result", RANK, NAME[0], *words)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def join():
    if not dist.is_initialized():
        dist.init_process_group("gloo")


def joined():
    """The same network, trained by all ranks."""
    join()
    return DistributedDataParallel(net())


def batches(count=12, size=8):
    draw = torch.Generator().manual_seed(RANK + 1)
    for _ in range(count):
        x = torch.randn(size, 8, generator=draw)
        yield x, x.sum(1, keepdim=True)


def error(model, batch):
    x, y = batch
    loss = (model(x) - y).square().mean()
    begins()
    return loss


def begins():
    """The first gradients are asked for."""
    if not TIMES:
        TIMES.append(time.time())


def note(loss):
    """A step of the training is over, on this loss."""
    LOSSES.append(float(loss.detach() if isinstance(loss, torch.Tensor) else loss))
    TIMES.append(time.time())


def train(model, optimizer, count=12, pause=0.0):
    """Returns the last loss."""
    for batch in batches(count):
        time.sleep(pause)
        loss = error(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note(loss)
    return loss.item()


def weights(model):
    """The sum of all weights, to their last digit."""
    return repr(float(sum(each.detach().double().sum() for each in model.parameters())))


def _truth():
    if RANK == 0 and LOSSES:
        line("truth", json.dumps({"losses": LOSSES, "times": TIMES, **MORE}))


def run(scripts):
    """Do what the command line names, one after the other in one process: to load torch takes most of the time."""
    atexit.register(_truth)
    start = os.getcwd()
    for NAME[0] in sys.argv[1:]:
        os.chdir(start)
        scripts[NAME[0]]()
    if dist.is_initialized():
        dist.destroy_process_group()
