"""DDP: every rank has a whole copy of the model; gradients are averaged during the backward pass."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..buffers import Buffers


class Replicated:
    """The model replicated on every rank."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        devices = [device.index] if device.type == "cuda" else None
        self.bare = model.to(device)
        self._ddp = DistributedDataParallel(self.bare, device_ids=devices, gradient_as_bucket_view=True)
        self._ddp.broadcast_buffers = False  # from here on `Buffers` does that, at the end of each step
        self.buffers: Buffers | None = Buffers(self.bare)
        self.training: nn.Module = self._ddp

    def synchronize(self, gradients: bool) -> None:
        """Set what `no_sync` sets, without entering a context in each iteration."""
        self._ddp.require_backward_grad_sync = gradients
