"""A few numbers of a step are summed over all ranks while backward computes: the loss, and who was asked to stop.

The message travels while backward computes. On a GPU its answer comes to the host in a stream of its own: the host has
it as soon as all ranks have done their forward pass, and hands the GPU the update and the next step while backward is
still at work. In the order of the GPU's own work it would come after backward, and the GPU would wait for the host.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


class Totals:
    """Sums a few numbers over all ranks, one sum at a time."""

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream, self._arrived = torch.cuda.Stream(device), torch.cuda.Event()
            self._host = torch.empty(2, pin_memory=True)

    def send(self, values: Tensor) -> None:
        """Begin to sum `values`, two numbers of type float32 on this rank's device."""
        self._values, self._work = values, dist.all_reduce(values, async_op=True)
        if self._stream:
            with torch.cuda.stream(self._stream):
                self._work.wait()  # the stream waits, the host does not
                self._host.copy_(values, non_blocking=True)
            values.record_stream(self._stream)
            self._arrived.record(self._stream)

    def receive(self) -> list[float]:
        """Wait for the sums."""
        if self._stream:
            self._arrived.synchronize()
            return self._host.tolist()
        self._work.wait()
        return self._values.tolist()
