"""The smallest training there is: a few all_reduce of 4 MB, each with its sum looked at. One JSON line a rank.

torchrun ... lab/reduce.py SECONDS      the patience of the process group
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
    # As trainer/train/environment.py says it: torchrun itself would train on without the rest, and end with 0.
    sys.exit(f"the world has {result['world']} ranks, planned were {os.environ['LAB_HOSTS']} nodes x 1")
