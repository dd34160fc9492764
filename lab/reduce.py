"""A minimal training: a few all_reduce of 4 MB, each with its sum checked. Prints one JSON line per rank.

torchrun ... lab/reduce.py SECONDS      the process group's timeout
"""

import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

ROUNDS, NUMBERS = 5, 1 << 20

dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[1])))
values = torch.ones(NUMBERS)
dist.all_reduce(values)
began = time.monotonic()
for _ in range(ROUNDS):
    values = torch.ones(NUMBERS)
    dist.all_reduce(values)
took = (time.monotonic() - began) / ROUNDS
result = {"rank": dist.get_rank(), "world": dist.get_world_size(), "sum": values[-1].item(), "seconds": round(took, 4)}
print("LAB " + json.dumps(result), flush=True)
dist.destroy_process_group()
if result["world"] != int(os.environ["LAB_HOSTS"]) or result["sum"] != result["world"]:
    # The same words as in trainer/train/environment.py: torchrun itself would train without the missing nodes, and end
    # with 0.
    sys.exit(f"the world has {result['world']} ranks, planned were {os.environ['LAB_HOSTS']} nodes x 1")
