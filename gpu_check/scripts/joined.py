"""How gpu_check's scripts join: this rank's device, and the process group on it."""

import os

import torch
import torch.distributed as dist


def joined(backend: str, alone: bool = False) -> torch.device:
    """This rank's device, after all ranks have joined; with `alone`, none join."""
    on_gpu = backend == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    if not alone:
        dist.init_process_group(backend, device_id=device if on_gpu else None)
    return device
