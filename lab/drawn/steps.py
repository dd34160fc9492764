"""A small training as people write it: batches from a worker process, an all_reduce of 4 MB per step, a checkpoint.

torchrun ... lab/drawn/steps.py SECONDS      the process group's timeout; prints a JSON line per rank, as lab/reduce.py
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

STEPS, NUMBERS, LOADER_S = 5, 1 << 20, 20


def main() -> None:
    """Train, then write a checkpoint in the working folder."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[1])))
    rank, world = dist.get_rank(), dist.get_world_size()
    weights = torch.ones(NUMBERS)
    dist.all_reduce(weights)
    loader = DataLoader(TensorDataset(torch.ones(STEPS, 1 << 16)), num_workers=1, timeout=LOADER_S)
    took, seen = 0.0, 0
    for (batch,) in loader:
        seen += int(batch.sum().item() == 1 << 16)
        began, weights = time.monotonic(), torch.ones(NUMBERS)
        dist.all_reduce(weights)
        took += time.monotonic() - began
    made = Path(f"checkpoint-{rank}-{os.environ['LAB_HOSTS']}.new")
    with made.open("wb") as file:
        torch.save({"weights": weights[: 1 << 16]}, file)
        file.flush()
        os.fsync(file.fileno())
    made.replace(made.with_suffix(".pt"))
    seconds = round(took / STEPS, 4)
    print(
        "LAB " + json.dumps({"rank": rank, "world": world, "sum": weights[-1].item(), "seconds": seconds}), flush=True
    )
    dist.destroy_process_group()
    if world != int(os.environ["LAB_HOSTS"]) or weights[-1] != world or seen != STEPS:
        sys.exit(f"the world has {world} ranks, planned were {os.environ['LAB_HOSTS']} nodes x 1")


if __name__ == "__main__":
    main()
