"""Sum a large tensor repeatedly, and record the rate in the run folder. Argument: the backend."""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from gpu_check.scripts.joined import joined

BYTES = {"nccl": 256 << 20, "gloo": 8 << 20}
WARM, TIMES = 3, 10


def main() -> None:
    """Measure the bus rate as nccl-tests defines it: what each link carries, independent of the number of ranks."""
    backend = sys.argv[1]
    device = joined(backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    values = torch.ones(BYTES[backend] // 4, device=device)
    for _ in range(WARM):
        dist.all_reduce(values)
    values.fill_(rank + 1.0)
    dist.all_reduce(values)
    right = bool((values == world * (world + 1) / 2).all())
    values.fill_(0.0)
    _wait(device)
    began = time.perf_counter()
    for _ in range(TIMES):
        dist.all_reduce(values)
    _wait(device)
    seconds = (time.perf_counter() - began) / TIMES
    rate = 2 * (world - 1) / world * BYTES[backend] / seconds / 1e9
    seen = {"rank": rank, "backend": dist.get_backend(), "right": right, "bytes": BYTES[backend], "bus_gb_s": rate}
    Path(os.environ["MUSTER_RUN_DIR"], f"seen-{rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.barrier()


if __name__ == "__main__":
    main()
