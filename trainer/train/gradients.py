"""A rank's share of the gradient norm, and gradient scaling, when weights are in different meshes; step.py adds up.

A model that tensor parallelism has sharded has several kinds of weights: tensors, and DTensors of one mesh or another.
The norm is computed on the local parts: DTensor's own arithmetic takes longer than the sums and sends a message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate


def squares(parameters: Iterable[nn.Parameter]) -> Tensor:
    """This rank's share of the sum of squares of all gradients, in float64: all ranks' shares add up to the sum.

    If several ranks hold the same part, each adds only its fraction.
    """
    by_copies: dict[int, list[Tensor]] = defaultdict(list)
    device = torch.device("cpu")
    for gradient in (parameter.grad for parameter in parameters):
        if gradient is not None:
            part, copies = _part(gradient)
            by_copies[copies].append(part)
            device = part.device
    sums = [nn.utils.get_total_norm(parts).double().square() / copies for copies, parts in by_copies.items()]
    return torch.stack(sums).sum() if sums else torch.zeros((), dtype=torch.float64, device=device)


def scale(parameters: Iterable[nn.Parameter], norm: float, limit: float) -> None:
    """Scale all gradients, whose common norm is `norm`, so that the norm is at most `limit`."""
    factor = limit / (norm + 1e-6)
    if factor >= 1:
        return
    for gradient in (parameter.grad for parameter in parameters):
        if gradient is not None:
            (gradient.to_local() if isinstance(gradient, DTensor) else gradient).mul_(factor)


def fit_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Turn off the fused and batched kernels of an optimizer that would mix several kinds of weights in one kernel."""
    for group in optimizer.param_groups:
        meshes = {parameter.device_mesh if isinstance(parameter, DTensor) else None for parameter in group["params"]}
        if len(meshes) > 1:
            group.update({name: False for name in ("fused", "foreach") if name in group})
    return optimizer


def _part(gradient: Tensor) -> tuple[Tensor, int]:
    """This rank's part of a gradient, and how many ranks hold the same part."""
    world = dist.get_world_size()
    if not isinstance(gradient, DTensor):
        return gradient, world
    if any(placement.is_partial() for placement in gradient.placements):
        whole = [Replicate() if placement.is_partial() else placement for placement in gradient.placements]
        gradient = gradient.redistribute(placements=whole)
    parts = 1
    for axis, placement in enumerate(gradient.placements):
        parts *= 1 if placement.is_replicate() else gradient.device_mesh.size(axis)
    return gradient.to_local(), world // parts
