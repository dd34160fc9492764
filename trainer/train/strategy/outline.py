"""A model without memory for its weights, and the values that it gets once it is cut.

Where a model is cut, only rank 0 builds it whole, on the CPU. The others have its outline, on the meta device of torch;
after the cut each rank takes its parts of the values of rank 0, one tensor at a time. So no GPU holds the whole model.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from muster.errors import TrainError


def outline(build: Callable[[], nn.Module]) -> nn.Module:
    """The model of `build` without memory; a whole one if `build` needs values, or keeps some that are no buffers."""
    try:
        with torch.device("meta"):
            model = build()
    except TrainError:  # for instance it loads a file, or draws from a generator of its own
        return build()
    named = {id(value) for value in _values(model).values()}
    gc.collect()
    objects = gc.get_objects()
    # `fill` cannot give values to what the model does not name: then the model is built with them.
    if any(issubclass(type(thing), Tensor) and thing.is_meta and id(thing) not in named for thing in objects):
        return build()
    return model


def whole_values(model: nn.Module) -> dict[str, Tensor]:
    """Rank 0's weights and buffers by name, before the cut; of no use on another rank."""
    return {name: value.detach() for name, value in _values(model).items()}


def fill(model: nn.Module, whole: dict[str, Tensor], device: torch.device) -> None:
    """Give the cut model its memory on `device`, and the values of rank 0's `whole`."""
    first = dist.get_rank() == 0
    if any(value.is_meta for value in _values(model).values()):
        model.to_empty(device=device)
    for name, value in _values(model).items():
        source = (
            whole[name].to(device).contiguous() if first else torch.empty(value.shape, dtype=value.dtype, device=device)
        )
        dist.broadcast(source, 0)
        with torch.no_grad():
            if isinstance(value, DTensor):
                # Each rank has all of this tensor by now: it takes its part without asking another.
                part = distribute_tensor(source, value.device_mesh, value.placements, src_data_rank=None)
                value.to_local().copy_(part.to_local())
            else:
                value.copy_(source)


def _values(model: nn.Module) -> dict[str, Tensor]:
    return dict(_each(model))


def _each(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()
