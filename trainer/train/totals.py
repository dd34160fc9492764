"""During the backward pass, sums a few numbers over all ranks: the loss, and whether a rank was asked to stop.

On a GPU, the sums come to the host in a separate stream: the host has them as soon as all ranks have done their forward
pass, and queues the update and the next step while the backward pass is still running. In the GPU's main stream they
would come after the backward pass, and the GPU would wait for the host.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


class Totals:
    """Sums a few numbers over all ranks; only one sum runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream, self._arrived = torch.cuda.Stream(device), torch.cuda.Event()
            self._host = torch.empty(2, pin_memory=True)

    def send(self, values: Tensor) -> None:
        """Start to sum `values`, two float32 numbers on this rank's device."""
        self._values, self._work = values, dist.all_reduce(values, async_op=True)
        if self._stream:
            with torch.cuda.stream(self._stream):
                self._work.wait()  # the stream waits, the host does not
                self._host.copy_(values, non_blocking=True)
            values.record_stream(self._stream)
            self._arrived.record(self._stream)

    def receive(self) -> list[float]:
        """Wait for the sums and return them."""
        if self._stream:
            self._arrived.synchronize()
            return self._host.tolist()
        self._work.wait()
        return self._values.tolist()
