"""The state of the parts of a training: model, optimizer, scheduler, and whatever else has a `state_dict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch.nn.parallel import DistributedDataParallel

from ..errors import CheckpointError
from . import cut


class Part(Protocol):
    """What can tell its state and take it back."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


def collect(parts: Mapping[str, Part]) -> dict[str, Any]:
    """The state of each part by its name; of a DDP model that of the model inside, which fits any world size."""
    return {name: _inside(part).state_dict() for name, part in parts.items()}


def apply(path: str, state: Mapping[str, Any], parts: Mapping[str, Part]) -> None:
    """Give each part its state from the checkpoint `path`. Raises CheckpointError if it lacks one, or does not fit."""
    for name, part in parts.items():
        if name not in state:
            raise CheckpointError(f"{path}: has no {name}", "was this part added since? then begin with a new folder")
        try:
            inside = _inside(part)
            inside.load_state_dict(cut.fit(state[name], inside))
        except (RuntimeError, ValueError, KeyError, AttributeError, TypeError) as fault:
            text = " ".join(str(fault).strip().splitlines()[:2])
            raise CheckpointError(
                f"{path}: does not fit this {name}: {text}", "did the code change since? then begin with a new folder"
            ) from fault
        if isinstance(part, torch.optim.Optimizer):
            match_layouts(part)


def match_layouts(optimizer: torch.optim.Optimizer) -> None:
    """Give moments the memory layout of their weights, which the code may have changed since the checkpoint.

    A fused optimizer reads both in the order of their memory: with two layouts it would mix up the elements.
    """
    for weight, moments in optimizer.state.items():
        for name, value in moments.items():
            if isinstance(value, torch.Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                moments[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def _inside(part: Part) -> Part:
    return part.module if isinstance(part, DistributedDataParallel) else part
