"""DDP: a whole copy of the model on every rank; gradients are averaged while backward computes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..buffers import Buffers


class Replicated:
    """The model on every rank."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        devices = [device.index] if device.type == "cuda" else None
        self.bare = model.to(device)
        self._ddp = DistributedDataParallel(self.bare, device_ids=devices, gradient_as_bucket_view=True)
        self._ddp.broadcast_buffers = False  # from here on `Buffers` does that, at the end of each step
        self.buffers: Buffers | None = Buffers(self.bare)
        self.training: nn.Module = self._ddp

    def synchronize(self, gradients: bool) -> None:
        """What `no_sync` sets, without its context in each iteration."""
        self._ddp.require_backward_grad_sync = gradients
