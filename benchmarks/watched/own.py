"""What a script knows of its own training: its steps, its loss at each, and how long its data took."""

import atexit
import json
import os
import time

import torch
from torch.utils.data import Dataset


class Own:
    """Filled by the script; written when it ends."""

    def __init__(self):
        self.losses, self.data_s, self.skipped = {}, 0.0, 0
        atexit.register(self._write)

    def stepped(self, step, loss):
        """The optimizer's step number `step` was on `loss`."""
        self.losses[step] = float(loss)

    def _write(self):
        name = f"own-{os.environ['RANK']}.json"
        record = {
            "losses": self.losses,
            "data_s": self.data_s,
            "skipped": self.skipped,
            "steps": max(self.losses, default=0),
        }
        with open(os.path.join(os.environ["OWN"], name), "w") as file:
            json.dump(record, file)


own = Own()
STEPS = int(os.environ.get("STEPS", "200"))


class Slow(Dataset):
    """Samples that take a while to read. An evaluation's are not what training waits for."""

    def __init__(self, count=STEPS * 4, seconds=0.0005, training=True, alike=False):
        draw = torch.Generator().manual_seed(1 if alike else 2 + int(os.environ["RANK"]))
        self.x = torch.randn(count, 16, generator=draw)
        self.y = self.x.sum(1, keepdim=True) + torch.randn(count, 1, generator=draw) / 10
        self.seconds, self.training = seconds, training

    def __len__(self):
        return len(self.x)

    def __getitem__(self, at):
        begin = time.perf_counter()
        time.sleep(self.seconds)
        if self.training:
            own.data_s += time.perf_counter() - begin
        return self.x[at], self.y[at]


def net(out=1):
    """A small network."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, out))
