"""A script like a user's: it joins, sums, and records what it saw in the run folder. Argument: the backend."""

import sys

FORKED = "torch" in sys.modules  # a forked rank has already imported it

import json  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from gpu_check.scripts.joined import joined  # noqa: E402

COUNT = 1 << 20


def addresses() -> list[str]:
    """The local IPv4 addresses of this process's connections."""
    mine = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    addresses = set()
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        parts = line.split()
        if parts[3] == "01" and f"socket:[{parts[9]}]" in mine:
            raw = bytes.fromhex(parts[1].split(":")[0])
            addresses.add(".".join(map(str, reversed(raw))))
    return sorted(addresses)


def main() -> None:
    """Join, sum, and record the result."""
    before = torch.cuda.is_initialized()
    device = joined(sys.argv[1])
    rank, world = dist.get_rank(), dist.get_world_size()
    values = torch.full((COUNT,), rank + 1.0, device=device)
    dist.all_reduce(values)
    right = bool((values == world * (world + 1) / 2).all())
    dist.barrier()
    seen = {
        **{"rank": rank, "world": world, "backend": dist.get_backend(), "device": str(device), "right": right},
        **{"forked": FORKED, "cuda_before": before, "addresses": addresses()},
    }
    Path(os.environ["MUSTER_RUN_DIR"], f"seen-{rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
