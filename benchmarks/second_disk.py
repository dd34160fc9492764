"""What it costs that a second host writes each checkpoint: steps with it, beside steps where rank 0 alone writes.

    python -m benchmarks.second_disk [--quick]

Two ranks train a model whose state (weights and Adam's moments) is 300 MB. In windows of some seconds each, one
checkpoint begins with the window: by turns rank 0 alone writes it, or both ranks do, each to a folder of its own. Both
folders are on this machine's one disk, and both writers hash on its cores: two hosts have one of each for themselves.
A checkpoint a minute costs as much of a minute.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from benchmarks.ranks import run_ranks

WINDOW_S, MINUTE_S, LIMIT = 8.0, 60.0, 5.0
LAYERS, WIDTH = 24, 1024  # x 3: the weights, and Adam's two moments


def measure(quick: bool) -> dict[str, Any]:
    """The median of the pairs: seconds that a second writer takes from the training, of each minute."""
    pairs = 3 if quick else 20
    with nodes.scratch() as scratch:
        run_ranks(2, scratch / "log", _rank, str(scratch), pairs, limit_s=600.0)
        told = json.loads((scratch / "steps.json").read_text())
    one, two = told["one"], told["two"]
    ratios = [b / a for a, b in zip(one, two, strict=True)]
    lost = [(1 - ratio) * WINDOW_S / MINUTE_S * 100 for ratio in ratios]
    say(f"steps with two writers against one: {statistics.median(ratios):.3f} of a window of {WINDOW_S:.0f} s")
    rows = [
        Row(
            f"training that a second disk costs, a checkpoint of {told['bytes'] / 1e6:.0f} MB a minute",
            f"{statistics.median(lost):.1f} %",
            target=f"<= {LIMIT:.0f} %",
            met=statistics.median(lost) <= LIMIT,
        ),
        Row(
            f"... steps in the {WINDOW_S:.0f} s around a checkpoint, two writers against one",
            f"{statistics.median(ratios):.3f}x ({min(ratios):.3f}-{max(ratios):.3f})",
        ),
    ]
    return result(rows, [f"{pairs} pairs by turns, 2 ranks and both folders on one machine and one disk"])


def _rank(folder: str, pairs: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from muster.checkpoint.writer import BackgroundWriter, WriteResult

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    size = 0

    def done(written: WriteResult) -> None:
        nonlocal size
        size = written.bytes

    writer = BackgroundWriter(Path(folder) / str(rank), 1, False, done)
    batch = torch.randn(16, WIDTH)
    told: dict[str, Any] = {"one": [], "two": []}
    for number in range(2 * pairs + 2):  # the first two find cold memory
        both = number % 2 == 1 if number % 4 < 2 else number % 2 == 0  # one two two one: neither is always second
        steps, end = 0, torch.zeros(1)
        began = time.monotonic()
        if rank == 0 or both:
            writer.submit(number, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, None, {})
        while not end:
            optimizer.zero_grad()
            parallel(batch).square().mean().backward()
            optimizer.step()
            steps += 1
            end = torch.tensor([float(time.monotonic() - began > WINDOW_S)])
            dist.broadcast(end, 0)
        seconds = time.monotonic() - began
        writer.wait()
        dist.barrier()
        if number > 1:
            told["two" if both else "one"].append(steps / seconds)
    if rank == 0:
        (Path(folder) / "steps.json").write_text(json.dumps({**told, "bytes": size}))
    writer.finish()


if __name__ == "__main__":
    alone(measure, __doc__)
