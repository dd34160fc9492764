"""Clip gradients and fit an optimizer where weights lie in different meshes: torch's own functions take only one kind.

A model cut by tensor parallelism has weights of several kinds: tensors, and DTensors of one mesh or another.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def clip(parameters: Iterable[nn.Parameter], limit: float) -> float:
    """Scale all gradients so that their common norm is at most `limit`, and return the norm that they had."""
    kinds = _by_kind(parameter for parameter in parameters if parameter.grad is not None)
    if len(kinds) == 1:
        return _number(nn.utils.clip_grad_norm_(kinds[0], limit))
    norms = [_number(nn.utils.get_total_norm([p.grad for p in kind if p.grad is not None])) for kind in kinds]
    total = torch.linalg.vector_norm(torch.tensor(norms, dtype=torch.float64))
    for kind in kinds:
        nn.utils.clip_grads_with_norm_(kind, limit, total.to(kind[0].device, torch.float32))
    return float(total)


def fit_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """An optimizer whose fused and batched kernels would get weights of several kinds takes each weight alone."""
    for group in optimizer.param_groups:
        if len(_by_kind(group["params"])) > 1:
            group.update({name: False for name in ("fused", "foreach") if name in group})
    return optimizer


def _by_kind(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    kinds: dict[object, list[nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault(parameter.device_mesh if isinstance(parameter, DTensor) else None, []).append(parameter)
    return list(kinds.values())


def _number(norm: Tensor) -> float:
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
