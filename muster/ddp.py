"""Make a DDP model add gradients in its first step in the same order as in all later steps.

After its first backward pass, DDP regroups its gradient buckets. With three or more ranks this changes the order in
which it adds their gradients, and so the last bit of the sums: the first step of a resumed run would differ from the
same step of a run that never stopped. `settle` makes DDP regroup before the first step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .checkpoint.randomness import random_state, restore_random_state
from .data import mapped


def settle(model: DistributedDataParallel) -> None:
    """Before the first training forward pass, run that pass once as a rehearsal: its zero gradients are discarded."""

    def first(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not (model.training and torch.is_grad_enabled()):
            return
        hook.remove()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # A model may change its input, and the input may be part of another model's graph.
        args, kwargs = mapped((args, kwargs), _copy)
        with unchanged(model.module, parameters[0].device), _synchronized(model):
            mapped(model(*args, **kwargs), (parts := list[Any]()).append)
            sums = [part.float().sum() for part in parts if isinstance(part, torch.Tensor) and part.requires_grad]
            if sums:
                (torch.stack(sums).sum() * 0).backward()
        for parameter in parameters:
            parameter.grad = None

    hook = model.register_forward_pre_hook(first, with_kwargs=True)


@contextmanager
def unchanged(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore the model's buffers and this rank's random state at the end of the block."""
    buffers, before = copy.deepcopy(dict(model.named_buffers())), random_state(device)
    yield
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in buffers and buffer.shape == buffers[name].shape:  # if not, it is a cache that grew in the block
                buffer.copy_(buffers[name])
    restore_random_state(before, device)


@contextmanager
def _synchronized(model: DistributedDataParallel) -> Iterator[None]:
    """Exchange gradients even if the script accumulates them (`no_sync`): DDP regroups only after an exchange."""
    before, model.require_backward_grad_sync = model.require_backward_grad_sync, True
    try:
        yield
    finally:
        model.require_backward_grad_sync = before


def _copy(part: Any) -> Any:
    return part.detach().requires_grad_(part.requires_grad).clone() if isinstance(part, torch.Tensor) else part
