"""Strategies: how a mesh's ranks share a model. The step, the evaluation and checkpoints depend on no strategy.

Each strategy has one file. To add one: a file with a class that follows `Strategy`, and its line in `choose`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from ...mesh import Mesh
from ..buffers import Buffers

Plan = Mapping[str, Any]
TryLoss = Callable[[nn.Module], torch.Tensor]


class Strategy(Protocol):
    """A model that the ranks share."""

    bare: nn.Module
    """The model with this rank's weights: for the optimizer, evaluation and checkpoints."""
    training: nn.Module
    """The model that the loss function gets in training."""
    buffers: Buffers | None
    """The model's buffers, if each rank holds the whole model; else None."""

    def synchronize(self, gradients: bool) -> None:
        """Set whether the next backward pass adds up the ranks' gradients: only the last one of a step does."""


def build_on(mesh: Mesh, build: Callable[[], nn.Module]) -> nn.Module:
    """The model that `choose` needs on this rank: built by `build` on the CPU, or its outline if that is enough."""
    if mesh.copies or dist.get_rank() == 0:
        return build()
    from .outline import outline

    return outline(build)


def choose(mesh: Mesh, model: nn.Module, device: torch.device, plan: Plan | None, try_loss: TryLoss | None) -> Strategy:
    """The strategy for the mesh, with `model` on `device`; all ranks get rank 0's weights.

    `plan` is the recipe's plan for tensor parallelism; `try_loss` is the loss to test it with, or None to trust the
    plan.
    """
    if mesh.copies:
        from .ddp import Replicated

        return Replicated(model, device)
    from .fsdp import Sharded

    return Sharded(model, mesh, device, plan, try_loss)
