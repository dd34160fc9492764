"""The script and the recipe that benchmarks.breaks breaks, with a place for a fault in them."""

from __future__ import annotations

import textwrap

from benchmarks.breaks import Fault

_COMMON = """
import ctypes, datetime, fcntl, hashlib, math, mmap, os, pathlib, queue, random, re, resource, signal, socket
import subprocess, sys, tempfile, threading, time
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

RANK = int(os.environ["RANK"])
NOW = os.path.join(os.environ.get("MUSTER_RUN_DIR") or os.environ["BREAKS_DIR"], f"now-{RANK}")
SLOW, DATA, NAN = 0.0, 0.0, 1.0
BAD = pathlib.Path(NOW + ".bad")

class Rows(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, place):
        if BAD.exists():
            raise ValueError(f"row {place} is broken")
        return torch.ones(3)

def spin():
    n = 0
    while True:
        n += 1

def due():
    if not os.path.exists(NOW):
        return False
    os.rename(NOW, NOW + ".done")
    return True
"""
_SCRIPT = """
class Numbers(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, place):
        if DATA and place % 4 == 0:
            time.sleep(DATA)
        return torch.full(({width},), float(place % 7))

dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear({width}, {hidden}), nn.Linear({hidden}, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step, batch in enumerate(DataLoader(Numbers(), batch_size=4)):
    if step == 10:
        print("trains", flush=True)
    if due():
        {inside}
    time.sleep(0.03 + SLOW)
    loss = model(batch).pow(2).mean() * NAN
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(torch.ones(3))
"""
_RECIPE = """
def model():
    return nn.Sequential(nn.Linear({width}, {hidden}), nn.Linear({hidden}, 1))

def datasets(data):
    x = torch.sin(torch.arange(1024.0 * {width})).view(-1, {width})
    return TensorDataset(x, x.sum(1, keepdim=True)), TensorDataset(x[:16], x[:16].sum(1, keepdim=True))

def loss(model, batch):
    global SLOW, NAN
    if due():
        {inside}
    time.sleep(0.03 + SLOW)
    x, y = batch
    return ((model(x) - y) ** 2).mean() * NAN
"""


def source(fault: Fault, kind: str) -> str:
    """The script, or the recipe, with the fault inserted."""
    wide = "1024" if fault.big else "8"
    body = textwrap.indent(fault.inside or "pass", "        ").strip()
    text = _COMMON + (_SCRIPT if kind == "script" else _RECIPE)
    return text.replace("{width}", wide).replace("{hidden}", "2048" if fault.big else "8").replace("{inside}", body)
