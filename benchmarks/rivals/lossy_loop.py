"""A DDP loop with 10 MB of weights that benchmarks.rivals_on_faults kills or stops: plain, and as rivals want it.

    lossy_loop.py plain|heartbeats|in-process|torchft FOLDER

Each step is a line in FOLDER/steps-RANK: time and process. Plain: rank 0 saves every 20 steps, and all begin from that.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

HOW, FOLDER = sys.argv[1], Path(sys.argv[2])
PAUSE_S, SAVE_EVERY, STEPS = 0.03, 20, 1_000_000


def model() -> nn.Module:
    """10 MB of weights."""
    torch.manual_seed(1)
    return nn.Linear(1024, 2560)


def note(rank: str) -> None:
    """A step is done."""
    with (FOLDER / f"steps-{rank}").open("a") as file:
        file.write(f"{time.time():.3f} {os.getpid()}\n")


def train(wrapped: Any, optimizer: Any, rank: str, beat: Any = None) -> None:
    """Steps without an end."""
    for step in range(1, STEPS):
        time.sleep(PAUSE_S)
        optimizer.zero_grad()
        wrapped(torch.ones(4, 1024)).square().mean().backward()
        optimizer.step()
        note(rank)
        if beat:
            beat()
        if rank == "0" and HOW in ("plain", "heartbeats") and step % SAVE_EVERY == 0:
            torch.save(wrapped.module.state_dict(), FOLDER / "saved.new")
            (FOLDER / "saved.new").replace(FOLDER / "saved")


def plain(beat: Any = None) -> None:
    """DDP as in the tutorial."""
    dist.init_process_group("gloo")
    own = model()
    if (FOLDER / "saved").exists():
        own.load_state_dict(torch.load(FOLDER / "saved"))
    wrapped = nn.parallel.DistributedDataParallel(own)
    train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=1e-6), os.environ["RANK"], beat)


def heartbeats() -> None:
    """nvidia-resiliency-ext's launcher hears of each step."""
    from nvidia_resiliency_ext import fault_tolerance

    client = fault_tolerance.RankMonitorClient()
    client.init_workload_monitoring()
    plain(client.send_heartbeat)


def in_process() -> None:
    """nvidia-resiliency-ext starts the function again in the processes that are left, as in its optimal_example.py."""
    from nvidia_resiliency_ext import inprocess

    first, port = os.environ["RANK"], int(os.environ["MASTER_PORT"])
    base = dist.TCPStore(os.environ["MASTER_ADDR"], port + 1, 3, first == "0", multi_tenant=True)

    def again(call: Any = None) -> None:
        place = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
        dist.init_process_group("gloo", store=dist.PrefixStore(str(call.iteration), base), **place)
        wrapped = nn.parallel.DistributedDataParallel(model())
        train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=1e-6), first)

    again.__annotations__["call"] = inprocess.CallWrapper  # by this it knows what to pass
    inprocess.Wrapper(
        initialize=inprocess.initialize.RetryController(min_world_size=2),
        abort=inprocess.abort.AbortTorchDistributed(),
        store_kwargs={"port": port + 2},
    )(again)()


def with_torchft() -> None:
    """Each rank is a replica group of its own, as in torchft's train_ddp.py."""
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    own = model()
    inner = torch.optim.SGD(own.parameters(), lr=1e-6)

    def load(state: dict[str, Any]) -> None:
        own.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"model": own.state_dict(), "optimizer": inner.state_dict()},
        replica_id=f"lossy_{os.environ['GROUP']}",
        timeout=timedelta(seconds=10),
    )
    train(DistributedDataParallel(manager, own), Optimizer(manager, inner), os.environ["GROUP"])


if __name__ == "__main__":
    {"plain": plain, "heartbeats": heartbeats, "in-process": in_process, "torchft": with_torchft}[HOW]()
