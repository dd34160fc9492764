"""What the scripts beside this file have in common: a small model that trains as one, and the end that is asked for.

`FRAMEWORK_END`: `done` ends well, `failed` raises, anything else waits to be killed. Before that, a script writes down
which files it has left and how large they are: `expected-<rank>.json` in its home.
"""

import json
import os
import time
from pathlib import Path

import torch
from torch import distributed


def join():
    """One process group for all ranks; a framework may have made it already."""
    if not distributed.is_initialized():
        distributed.init_process_group("gloo")


def model():
    """A linear layer whose gradients all ranks share."""
    join()
    torch.manual_seed(0)
    return torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))


def samples():
    """64 rows of 8 numbers."""
    torch.manual_seed(1)
    return torch.utils.data.TensorDataset(torch.randn(64, 8))


class Words(torch.utils.data.Dataset):
    """Rows of token numbers for a language model."""

    def __len__(self):
        """64 rows."""
        return 64

    def __getitem__(self, index):
        """One row."""
        row = torch.arange(index, index + 16) % 64
        return {"input_ids": row, "labels": row}


def train(net, log=lambda step, loss: None):
    """Five steps; `log` gets each loss."""
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for step, (rows,) in enumerate(torch.utils.data.DataLoader(samples(), batch_size=12)):
        loss = net(rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(step, loss.item())


def hold(*paths):
    """Write down the files that must come home, and end as asked."""
    files = [path for path in map(Path, paths) if path.is_file()]
    sizes = {f"work/{path.as_posix()}": path.stat().st_size for path in files}
    rank = os.environ["RANK"]
    (Path.home() / f"expected-{rank}.json").write_text(json.dumps(sizes))
    print(f"wrote {len(files)} files", flush=True)
    join()
    distributed.barrier()
    how = os.environ.get("FRAMEWORK_END", "done")
    if how == "failed":
        raise ValueError("as it was asked to")
    while how != "done":
        time.sleep(0.2)
