"""The state of the parts of a training: model, optimizer, scheduler, and anything else with a `state_dict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from ..errors import CheckpointError
from . import cut
from .shards import Shards


class Part(Protocol):
    """An object that can return its state and load it again."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


def collect(parts: Mapping[str, Part]) -> dict[str, Any]:
    """The state of each part by its name. For a DDP model, it is the inner model's, which fits any world size."""
    return {name: _inside(part).state_dict() for name, part in parts.items()}


def apply(path: str, state: Mapping[str, Any], parts: Mapping[str, Part], shards: Shards | None = None) -> None:
    """Load each part's state from the checkpoint `path`. Raises CheckpointError if it is missing or does not fit.

    A part that is split over the ranks gets its boxes of each tensor. `shards` has the tensors that are not in `state`;
    all ranks call this.
    """
    fitting = fit({name: state[name] for name in parts if name in state}, parts, shards)
    for name, part in parts.items():
        if name not in state:
            raise CheckpointError(f"{path}: has no {name}", "was this part added since? then start with a new folder")
        own = _implementation(part)
        try:
            _inside(part).load_state_dict(fitting[name])
        except (RuntimeError, ValueError, KeyError, AttributeError, TypeError) as fault:
            text = " ".join(str(fault).strip().splitlines()[:2])
            raise CheckpointError(
                f"{path}: does not fit this {name}: {text}", "did the code change since? then start with a new folder"
            ) from fault
        if isinstance(part, torch.optim.Optimizer):
            for group, choice in zip(part.param_groups, own, strict=True):
                group.update(choice)
            match_moments(part, fitting[name]["state"])


def _implementation(part: Part) -> list[dict[str, Any]]:
    """For each group of an optimizer's weights, which implementation computes it.

    The implementation fits this mesh and is not part of the run's state: an AdamW that was fused because its weights
    were whole is saved as fused, and would fail with weights of which some are split.
    """
    groups = part.param_groups if isinstance(part, torch.optim.Optimizer) else []
    return [{name: group[name] for name in ("fused", "foreach") if name in group} for group in groups]


def fit(state: dict[str, Any], parts: Mapping[str, Part], shards: Shards | None) -> dict[str, Any]:
    """Split each tensor of `state` as the parts' own are.

    One of another shape stays whole, so that its part rejects it.
    """
    layouts = {name: cut.layout(_inside(parts[name])) for name in state}

    def place(path: cut.Path, shape: Sequence[int]) -> DTensor | None:
        wanted = layouts[path[0]](path[1:])
        return wanted if wanted is not None and tuple(wanted.shape) == tuple(shape) else None

    wants: dict[str, cut.Box] = {}

    def want(path: cut.Path, value: Any) -> None:
        if isinstance(value, cut.Absent):
            like = place(path, value.shape)
            wants[value.key] = tuple((0, size) for size in value.shape) if like is None else cut.box(like)

    cut.replace(state, want)
    got = shards.fetch(wants) if shards else {}

    def put(path: cut.Path, value: Any) -> Any:
        like = place(path, value.shape)
        if isinstance(value, cut.Absent):
            return got[value.key] if like is None else cut.like(got[value.key], like)
        return value if like is None else cut.like(cut.inside(value, cut.box(like)).clone(), like)

    fitted: dict[str, Any] = cut.replace(state, put)
    return fitted


def match_moments(optimizer: torch.optim.Optimizer, saved: Mapping[int, Mapping[str, Any]]) -> None:
    """Restore the dtype of optimizer moments, and give them the memory layout of their weights.

    Loading converts moments to the dtype of their weights: with bf16 weights, fp32 moments would lose bits. Torch's own
    optimizers need this conversion and keep it; for other optimizers, the saved dtype is restored. The code may have
    changed the layout of the weights since the checkpoint; a fused optimizer reads weights and moments in memory order,
    so with two different layouts it would mix up the elements.
    """
    own = type(optimizer).__module__.startswith("torch.")
    weights = (weight for group in optimizer.param_groups for weight in group["params"])
    for index, weight in enumerate(weights):
        moments = optimizer.state.get(weight, {})
        for name, value in moments.items():
            if not isinstance(value, torch.Tensor):
                continue
            then = value if own else saved.get(index, {}).get(name, value).to(value.device)
            whole = not isinstance(then, DTensor) and then.shape == weight.shape
            if whole and then.stride() != weight.stride():
                then = torch.empty_like(weight, dtype=then.dtype).copy_(then)
            moments[name] = then


def _inside(part: Part) -> Part:
    return part.module if isinstance(part, DistributedDataParallel) else part
