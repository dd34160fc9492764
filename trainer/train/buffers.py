"""A model's buffers (for example the running means of a BatchNorm): after each step all ranks have rank 0's.

DDP would broadcast rank 0's buffers only before the next step. Until then each rank would have its own, and if rank 0
were lost, its buffers would be lost too.
"""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Buffers:
    """The buffers of a `model`; each rank has a copy of the model. All ranks build this at the same place."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._any = any(True for _ in model.buffers())
        self._of_last_step: list[Tensor] = []
        self._sent: list[Tensor] = []
        self._works: list[dist.Work] = []
        self.send()
        self.wait()
        self.finish()

    def send(self) -> None:
        """After the last forward pass of a step: rank 0 sends its buffers while the backward pass runs."""
        if not self._any:
            return
        self._sent = [torch.cat([buffer.reshape(-1) for buffer in alike]) for alike in self._alike()]
        works = [dist.broadcast(values, 0, async_op=True) for values in self._sent]
        self._works = [work for work in works if work is not None]

    def wait(self) -> None:
        """Wait for the buffers from rank 0."""
        for work in self._works:
            work.wait()

    def finish(self) -> None:
        """Copy rank 0's buffers into the model; called together with the update of the weights."""
        self._of_last_step = self._sent
        if dist.get_rank():
            self.restore()

    def restore(self) -> None:
        """Restore the buffers of the last finished step, whatever forward passes have changed since."""
        for alike, values in zip(self._alike(), self._of_last_step, strict=False):
            parts = values.split([buffer.numel() for buffer in alike])
            for buffer, part in zip(alike, parts, strict=True):
                buffer.copy_(part.view_as(buffer))

    def _alike(self) -> list[list[Tensor]]:
        """The buffers, grouped by type and device. A model may replace a buffer, so this looks them up each time."""
        by_type: dict[tuple[torch.dtype, torch.device], list[Tensor]] = defaultdict(list)
        for buffer in self._model.buffers() if self._any else ():
            by_type[buffer.dtype, buffer.device].append(buffer.detach())
        return list(by_type.values())
