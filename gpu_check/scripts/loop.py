"""A training loop as users write it: DDP, AMP on GPUs, a line each ten steps. It ends, or goes on.

    loop.py BACKEND STEPS [SAVE] [strict]

`strict`: after some steps any operation that waits for the GPU is an error.
"""

import itertools
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WARM = 20


def main() -> None:
    """Train for STEPS (0: for ever), and leave the weights in SAVE."""
    backend, steps, save = sys.argv[1], int(sys.argv[2]), (sys.argv[3:] or [""])[0]
    on_gpu, strict = backend == "nccl", "strict" in sys.argv
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(backend, device_id=device if on_gpu else None)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    wrapped = DistributedDataParallel(model.to(device))
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    inputs, classes = torch.rand(4096, 128), torch.randint(10, (4096,))
    if on_gpu:  # from pageable memory a copy waits
        inputs, classes = inputs.pin_memory(), classes.pin_memory()
    for step in itertools.count(1):
        low = step * 256 % 4096
        batch = (
            inputs[low : low + 256].to(device, non_blocking=True),
            classes[low : low + 256].to(device, non_blocking=True),
        )
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = nn.functional.cross_entropy(wrapped(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if strict and step == WARM:
            torch.cuda.set_sync_debug_mode("error")
        if step % 10 == 0:
            print(json.dumps({"t": time.time(), "step": step}), flush=True)
        if step == steps:
            break
    if strict:
        torch.cuda.set_sync_debug_mode("default")
    if save and dist.get_rank() == 0:
        torch.save(model.state_dict(), save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
