"""Copies the training state into reusable CPU buffers.

Training stops only for this copy; writer.py writes the copy to a file while training continues. The copy is by storage,
not by tensor: tensors that share a storage (tied weights, views) share it in the copy, too.
"""

from __future__ import annotations

import mmap
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

_PLAIN = (type(None), bool, int, float, str, bytes)
_ALIGN = 64
_Key = tuple[torch.device, int, int]


class Snapshot:
    """A reusable set of CPU buffers. The result of `take` is valid until the next `take`."""

    def __init__(self) -> None:
        self._layout: list[tuple[int, bool]] = []
        self._buffers: list[torch.Tensor] = []

    def take(self, state: dict[str, Any]) -> dict[str, Any]:
        """A copy of `state` on the CPU that shares no memory with it, without gradients.

        Raises TypeError for anything but dense tensors, dict, list, tuple and plain values, because
        `torch.load(weights_only=True)` could not load it.
        """
        sources = _storages(state)
        layout = [(storage.nbytes(), storage.device.type == "cuda") for storage in sources.values()]
        if layout != self._layout:
            self._layout, self._buffers = [], []  # release the old memory before allocating new memory
            self._buffers = _allocate(layout)
            self._layout = layout
        copies = dict(zip(sources, self._buffers, strict=True))
        for key, buffer in copies.items():
            buffer.untyped_storage().copy_(sources[key], non_blocking=key[0].type == "cuda")
        for device in {key[0] for key in copies if key[0].type == "cuda"}:
            torch.cuda.synchronize(device)
        copied: dict[str, Any] = _map(state, lambda tensor: _view(copies[_key(tensor)], tensor), "state")
        return copied


def _storages(state: dict[str, Any]) -> dict[_Key, torch.UntypedStorage]:
    """Each storage once, in the order in which it first occurs in `state`."""
    storages: dict[_Key, torch.UntypedStorage] = {}
    _map(state, lambda tensor: storages.setdefault(_key(tensor), tensor.untyped_storage()), "state")
    return storages


def _key(tensor: torch.Tensor) -> _Key:
    storage = tensor.untyped_storage()
    return tensor.device, storage.data_ptr(), storage.nbytes()


def _view(buffer: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A view of `buffer` with the type, offset, shape and strides of `like`."""
    empty = torch.empty(0, dtype=like.dtype)
    return empty.set_(buffer.untyped_storage(), like.storage_offset(), like.size(), like.stride())


def _map(value: Any, each: Callable[[torch.Tensor], Any], where: str) -> Any:
    """A copy of `value` with `each(tensor)` for every tensor. Raises TypeError with the place of any other type."""
    if isinstance(value, torch.Tensor):
        dense = value.detach()
        if type(dense) is not torch.Tensor or dense.layout is not torch.strided or dense.is_conj() or dense.is_neg():
            raise TypeError(f"{where}: not a plain dense tensor: {type(value).__name__}, {value.layout}")
        return each(dense)
    if type(value) in _PLAIN:
        return value
    if type(value) in (list, tuple):
        return type(value)(_map(item, each, f"{where}[{i}]") for i, item in enumerate(value))
    if type(value) in (dict, OrderedDict, Counter):  # MultiStepLR's state contains a Counter
        copied = type(value)()
        for key, item in value.items():
            if type(key) not in _PLAIN:
                raise TypeError(f"{where}: a checkpoint cannot hold a key that is a {type(key).__name__}")
            copied[key] = _map(item, each, f"{where}[{key!r}]")
        # A module's state_dict has an attribute that holds the versions of its layers.
        for name, attribute in getattr(value, "__dict__", {}).items():
            setattr(copied, name, _map(attribute, each, f"{where}.{name}"))
        return copied
    raise TypeError(f"{where}: a checkpoint cannot hold a {type(value).__name__}; turn it into plain values first")


def _allocate(layout: list[tuple[int, bool]]) -> list[torch.Tensor]:
    """Allocate a byte buffer for each (bytes, pinned). A GPU can copy to pinned memory without the CPU."""
    starts, end = [], 0
    for size, pinned in layout:
        starts.append(end)
        end += 0 if pinned else -(-size // _ALIGN) * _ALIGN
    slab = _huge_pages(end)
    buffers = []
    for (size, pinned), start in zip(layout, starts, strict=True):
        if pinned or not size:
            buffers.append(torch.empty(size, dtype=torch.uint8, pin_memory=pinned))
        else:
            buffers.append(torch.frombuffer(slab, dtype=torch.uint8, count=size, offset=start))
    return buffers


def _huge_pages(size: int) -> mmap.mmap:
    """Allocate new memory, in huge pages if the kernel supports them.

    In a virtual machine the first access to 300 MiB took 0.5 s with ordinary pages and 0.08 s with huge pages.
    """
    slab = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):
        slab.madvise(mmap.MADV_HUGEPAGE)  # type: ignore[attr-defined,unused-ignore]
    return slab
