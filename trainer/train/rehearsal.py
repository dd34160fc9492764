"""Passes over a micro-batch before the first step: their results are thrown away, what they changed is put back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch
import torch.distributed as dist
from torch import Tensor, nn

from muster.checkpoint.randomness import random_state, restore_random_state
from muster.errors import TrainError


@contextmanager
def rehearsal(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Within it the model trains; behind it its buffers and this rank's random states are as they were."""
    buffers, kept = copy.deepcopy(dict(model.named_buffers())), random_state(device)
    model.train()
    yield
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])
    restore_random_state(kept, device)


def lay_out(model: nn.Module, device: torch.device, loss: Callable[[], Tensor]) -> bool:
    """Lay the weights of convolutions out channels-last if `loss`, a pass over a micro-batch, can do with it.

    Fast kernels (oneDNN's, and cuDNN's for tensor cores) work on memory in that order, and would else convert to it and
    back at every pass; see PyTorch's tutorial "Channels Last Memory Format in PyTorch". Results are the same but for
    rounding. A model whose own code minds (by a `.view` of what a convolution gave) is left as it is, on all ranks.
    """
    convolutions = [part for part in model.modules() if isinstance(part, nn.Conv2d)]
    if not convolutions:
        return False
    _turn(convolutions, torch.channels_last)
    goes = torch.zeros((), device=device)
    # What is wrong in either layout is told by the next pass.
    with rehearsal(model, device), suppress(TrainError, RuntimeError):
        loss().backward()
        goes.fill_(1)
    model.zero_grad()
    dist.all_reduce(goes, dist.ReduceOp.MIN)
    if not goes:
        _turn(convolutions, torch.contiguous_format)
    return bool(goes)


def _turn(convolutions: list[nn.Conv2d], layout: torch.memory_format) -> None:
    for one in convolutions:
        one.to(memory_format=layout)  # type: ignore[call-overload]
