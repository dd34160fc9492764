"""`python -m gpu_check.machine_facts`: print this machine's GPUs and this Python's packages, as JSON.

It runs as a separate process, so that the runner itself never imports torch and never holds a GPU.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
from typing import Any

PACKAGES = ("numpy", "tensorboardX", "psutil", "lightning", "accelerate")


def main() -> None:
    """Print the facts."""
    print(json.dumps(machine()))


def machine() -> dict[str, Any]:
    """Python, system, torch, GPUs, packages and tools."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "root": os.getuid() == 0,
        "packages": {name: version(name) for name in PACKAGES},
        "compilers": [name for name in ("g++", "clang++", "gcc", "cc") if shutil.which(name)],
        "torch": torch_facts(),
    }


def version(name: str) -> str | None:
    """A package's version; None if it cannot be imported."""
    if importlib.util.find_spec(name) is None:
        return None
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def torch_facts() -> dict[str, Any] | None:
    """The facts about torch and the GPUs; None if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch
    import torch.distributed as dist

    gpus = []
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        gpus.append(
            {
                "name": about.name,
                "memory_gb": round(about.total_memory / 1e9, 1),
                "capability": f"{about.major}.{about.minor}",
                "multiprocessors": about.multi_processor_count,
            }
        )
    nccl = list(torch.cuda.nccl.version()) if gpus and dist.is_nccl_available() else None
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version() if gpus else None,
        "nccl": nccl,
        "gloo": dist.is_gloo_available(),
        "triton": importlib.util.find_spec("triton") is not None,
        "gpus": gpus,
    }


if __name__ == "__main__":
    main()
