"""Tensors that are split over a mesh of ranks (DTensors): the box on this rank, and how to split a whole tensor alike.

With FSDP2 and tensor parallelism, each rank has such a box of every weight and of its optimizer state.
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
    """A placeholder for a tensor whose boxes the ranks have written under the name `key`. Files store it as a tuple."""

    key: str
    shape: tuple[int, ...]
    dtype: str


def box(tensor: DTensor) -> Box:
    """The box of the whole tensor that this rank holds."""
    (chunk,) = tensor.__create_chunk_list__()  # torch.distributed.checkpoint calls this on a tensor, too
    return tuple((start, start + size) for start, size in zip(chunk.offsets, chunk.sizes, strict=True))


def inside(tensor: torch.Tensor, wanted: Box) -> torch.Tensor:
    """The values in the box `wanted` of a whole tensor, without a copy."""
    return tensor[tuple(slice(low, high) for low, high in wanted)]


def like(local: torch.Tensor, cut: DTensor) -> DTensor:
    """A DTensor that is split in the same way as `cut`; `local` is this rank's part of it."""
    return DTensor.from_local(
        local.to(cut.device), cut.device_mesh, cut.placements, run_check=False, shape=cut.shape, stride=cut.stride()
    )


def is_cut(value: Any) -> bool:
    """Whether a nested state contains a split tensor."""
    cut: list[bool] = []
    replace(value, lambda _, tensor: cut.append(isinstance(tensor, DTensor)))
    return any(cut)


def replace(value: Any, each: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """Copy a nested state, with `each(path, tensor)` in place of every tensor and of every stored `Absent`."""
    if type(value) is tuple and len(value) == 4 and type(value[0]) is str and value[0] == MARK:
        return each(path, Absent(value[1], tuple(value[2]), value[3]))
    if isinstance(value, dict):
        copied = type(value)()
        for key, item in value.items():
            copied[key] = replace(item, each, (*path, key))
        # a module's state_dict keeps the versions of its layers there
        for name, attribute in getattr(value, "__dict__", {}).items():
            setattr(copied, name, attribute)
        return copied
    if type(value) in (list, tuple):
        return type(value)(replace(item, each, (*path, index)) for index, item in enumerate(value))
    return each(path, value) if isinstance(value, torch.Tensor) else value


def layout(part: Any) -> Callable[[Path], DTensor | None]:
    """Return a function from a path in the part's state to the DTensor that shows its split.

    None for a whole tensor.
    """
    # before its first step an optimizer has no state; later its state is split as its weights are
    if isinstance(part, torch.optim.Optimizer):
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
