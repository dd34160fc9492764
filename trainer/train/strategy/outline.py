"""A model without memory for its weights, and the values that it gets once it is cut.

Where a model is cut, only rank 0 builds it whole, on the CPU. The others have its outline, on the meta device of torch.
All cut an outline; then each rank takes its parts of the values of rank 0, one tensor at a time. So no GPU holds the
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
    """Rank 0's weights and buffers before the cut, a shared one by each of its names; of no use on another rank."""
    both = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return {name: value.detach() for name, value in both}


def hollow(model: nn.Module) -> nn.Module:
    """The model without the memory of its weights and buffers: an outline, also where a rank has built it whole."""
    with _shared_weights_kept():
        return model.to("meta")


def give_memory(model: nn.Module, device: torch.device) -> nn.Module:
    """The outline with memory on `device`, whose content is anything."""
    with _shared_weights_kept():
        return model.to_empty(device=device)


def fill(model: nn.Module, whole: dict[str, Tensor], device: torch.device) -> None:
    """Give the cut outline its memory on `device`, and the values of rank 0's `whole`."""
    first = dist.get_rank() == 0
    give_memory(model, device)
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


@contextmanager
def _shared_weights_kept() -> Iterator[None]:
    """Without this torch would make a weight that two modules share into two, where it moves to another device."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _values(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
