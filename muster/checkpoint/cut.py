"""Tensors that a mesh of ranks has cut (DTensors): the box that is here, and how to cut a whole tensor alike.

FSDP2 and tensor parallelism leave each rank such a box of every weight and of its optimizer state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor

MARK = "muster:absent"
Box = tuple[tuple[int, int], ...]
"""For each dimension of the whole tensor its first index, and the one after its last."""
Path = tuple[Any, ...]
"""The keys that lead to a value in a nested state."""


@dataclass(frozen=True)
class Absent:
    """A placeholder for a tensor whose boxes the ranks have written under the name `key`. A file has a tuple for it."""

    key: str
    shape: tuple[int, ...]
    dtype: str


def box(tensor: DTensor) -> Box:
    """The box of the whole tensor that this rank has."""
    (chunk,) = tensor.__create_chunk_list__()  # what torch.distributed.checkpoint asks a tensor
    return tuple((start, start + size) for start, size in zip(chunk.offsets, chunk.sizes, strict=True))


def inside(tensor: torch.Tensor, wanted: Box) -> torch.Tensor:
    """The box `wanted` of a whole tensor, without a copy."""
    return tensor[tuple(slice(low, high) for low, high in wanted)]


def like(local: torch.Tensor, cut: DTensor) -> DTensor:
    """A tensor that is cut like `cut`; this rank has the part `local`."""
    return DTensor.from_local(
        local.to(cut.device), cut.device_mesh, cut.placements, run_check=False, shape=cut.shape, stride=cut.stride()
    )


def is_cut(value: Any) -> bool:
    """Whether a nested state has a tensor that is cut."""
    cut: list[bool] = []
    replace(value, lambda _, tensor: cut.append(isinstance(tensor, DTensor)))
    return any(cut)


def replace(value: Any, each: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """A copy of a nested state with `each(path, tensor)` for every tensor, and for every `Absent` that is marked."""
    if type(value) is tuple and len(value) == 4 and type(value[0]) is str and value[0] == MARK:
        return each(path, Absent(value[1], tuple(value[2]), value[3]))
    if isinstance(value, dict):
        copied = type(value)()
        for key, item in value.items():
            copied[key] = replace(item, each, (*path, key))
        for name, attribute in getattr(value, "__dict__", {}).items():  # a module's state has its layers' versions
            setattr(copied, name, attribute)
        return copied
    if type(value) in (list, tuple):
        return type(value)(replace(item, each, (*path, index)) for index, item in enumerate(value))
    return each(path, value) if isinstance(value, torch.Tensor) else value


def layout(part: Any) -> Callable[[Path], DTensor | None]:
    """For a path in the part's state: the tensor that is cut as the one there must be; None for a whole one."""
    if isinstance(part, torch.optim.Optimizer):  # before its first step it has no state: that lies as its weights do
        weights = [weight for group in part.param_groups for weight in group["params"]]

        def of_weight(path: Path) -> DTensor | None:
            weight = weights[path[1]] if len(path) == 3 and path[0] == "state" and path[1] < len(weights) else None
            return weight if isinstance(weight, DTensor) else None

        return of_weight
    places: dict[Path, DTensor] = {}

    def note(path: Path, tensor: torch.Tensor) -> None:
        if isinstance(tensor, DTensor):
            places[path] = tensor

    replace(part.state_dict(), note)
    return places.get
