"""`python -m trainer.elastic.rehearsal JSON`: a real all_reduce with the other nodes, right before the ranks start.

deploy/preflight/probe/all_reduce.py has the same for preflight. It prints `right`, or what went wrong.
"""

from __future__ import annotations

import datetime
import json
import os
import sys

_WAIT_S = 60


def main() -> int:
    """Take part; returns 0."""
    asked, answer = json.loads(sys.argv[1]), os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        import torch
        import torch.distributed as dist

        device = "cuda" if asked["backend"] == "nccl" else "cpu"
        if device == "cuda":
            torch.cuda.set_device(0)
        wait = datetime.timedelta(seconds=_WAIT_S)
        dist.init_process_group(
            asked["backend"], init_method=asked["url"], rank=asked["rank"], world_size=asked["world"], timeout=wait
        )
        data = torch.ones(1 << 20, device=device)
        dist.all_reduce(data)
        told = "right" if bool((data == asked["world"]).all()) else "a wrong sum"
    except Exception as fault:  # whatever it is, training would meet it as well
        told = (str(fault).strip().splitlines() or [type(fault).__name__])[0][:300]
    os.write(answer, f"{told}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
