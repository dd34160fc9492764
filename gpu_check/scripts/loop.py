"""A training loop as users write it: DDP, a loader, dropout, AMP on GPUs, a line every ten steps.

    loop.py BACKEND STEPS [strict]

STEPS 0: forever. At the end each rank writes a digest of its weights, last loss and generators to the run folder.
`strict`: after some steps, any operation that waits for the GPU is an error.
"""

import hashlib
import itertools
import json
import os
import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from gpu_check.scripts.joined import joined

WARM = 20


def main() -> None:
    """Train, and write a digest of everything that training changes."""
    backend, steps = sys.argv[1], int(sys.argv[2])
    on_gpu, strict = backend == "nccl", "strict" in sys.argv
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = joined(backend)
    torch.manual_seed(0)
    random.seed(0)
    images = TensorDataset(torch.randn(2048, 1, 16, 16), torch.randint(0, 10, (2048,)))
    layers = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Dropout(0.1), nn.Flatten()]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(2304, 10)).to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(images)
    # A copy to a GPU from memory that is not pinned waits.
    loader = DataLoader(images, batch_size=32, sampler=sampler, pin_memory=on_gpu)
    step = 0
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for batch in loader:
            x, y = (part.to(device, non_blocking=True) for part in batch)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
                loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            if strict and step == WARM:
                torch.cuda.set_sync_debug_mode("error")
            if dist.get_rank() == 0 and step % 10 == 0:
                print(json.dumps({"t": time.time(), "step": step}), flush=True)
            if step == steps:
                if strict:
                    torch.cuda.set_sync_debug_mode("default")
                end(model, loss)
                return


def end(model: nn.Module, loss: torch.Tensor) -> None:
    """Write the digest."""
    changed = [*model.parameters(), loss, torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
    numbers = [tensor.detach().cpu().reshape(-1).view(torch.uint8).tolist() for tensor in changed]
    state = repr((numbers, random.getstate())).encode()
    seen = Path(os.environ["MUSTER_RUN_DIR"], f"seen-{dist.get_rank()}.json")
    seen.write_text(json.dumps(hashlib.sha256(state).hexdigest()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
