"""A model without memory for its weights, and the values that it gets after it is split.

If a model is split, only rank 0 builds it whole, on the CPU. The other ranks have its outline, on torch's meta device.
All ranks split an outline; then each rank takes its parts of rank 0's values, one tensor at a time. So no GPU holds the
whole model.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from muster.errors import TrainError


def outline(build: Callable[[], nn.Module]) -> nn.Module:
    """Build the model without memory; a whole one if `build` needs values, or keeps tensors that are not buffers."""
    try:
        with torch.device("meta"):
            model = build()
    except TrainError:  # for example, it loads a file or draws from its own generator
        return build()
    named = {id(value) for value in _values(model).values()}
    gc.collect()
    objects = gc.get_objects()
    # `fill` can give values only to named weights and buffers: if there are other tensors, the whole model is built.
    if any(issubclass(type(thing), Tensor) and thing.is_meta and id(thing) not in named for thing in objects):
        return build()
    return model


def whole_values(model: nn.Module) -> dict[str, Tensor]:
    """Rank 0's weights and buffers before the split, a shared one under each of its names; not used on other ranks."""
    both = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return {name: value.detach() for name, value in both}


def hollow(model: nn.Module) -> nn.Module:
    """The model without the memory of its weights and buffers: an outline, even if this rank built the whole model."""
    with _shared_weights_kept():
        return model.to("meta")


def give_memory(model: nn.Module, device: torch.device) -> nn.Module:
    """Allocate the outline's memory on `device`; its content is undefined."""
    with _shared_weights_kept():
        return model.to_empty(device=device)


def fill(model: nn.Module, whole: dict[str, Tensor], device: torch.device) -> None:
    """Allocate the split outline's memory on `device`, and copy rank 0's `whole` values into it."""
    first = dist.get_rank() == 0
    give_memory(model, device)
    for name, value in _values(model).items():
        source = (
            whole[name].to(device).contiguous() if first else torch.empty(value.shape, dtype=value.dtype, device=device)
        )
        dist.broadcast(source, 0)
        with torch.no_grad():
            if isinstance(value, DTensor):
                # Each rank has this whole tensor by now, and takes its part without asking another rank.
                part = distribute_tensor(source, value.device_mesh, value.placements, src_data_rank=None)
                value.to_local().copy_(part.to_local())
            else:
                value.copy_(source)


@contextmanager
def _shared_weights_kept() -> Iterator[None]:
    """Keep shared weights shared: without this, torch would duplicate such a weight when it moves to another device."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _values(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
