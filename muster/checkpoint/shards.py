"""What each rank writes of a state that is split over the ranks, and how the ranks of any other mesh read it.

`shard-<rank>.pt` has the rank's boxes of each tensor; rank 0's file also has the rest of the state, with `Absent` in
place of these tensors. To load, each rank reports which boxes it needs. It reads them from the files on its own disk,
and the ranks send each other what a disk does not have: no disk has to be shared, and no rank gets more than it needs.

Why not torch.distributed.checkpoint: it notices no damage, and it reads its index with pickle, which runs code
(docs/decisions/0079-*).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

from .. import exchange
from ..errors import CheckpointError
from . import cut
from .cut import Absent, Box
from .manifest import ACCEPTED, FIRST, Manifest

Boxes = dict[str, tuple[Box, torch.Tensor]]


def name_of(rank: int) -> str:
    """The name of a rank's file."""
    return f"shard-{rank}.pt"


def part_of(state: dict[str, Any], rank: int) -> dict[str, Any]:
    """What `rank` writes: its boxes, and on rank 0 the rest. Empty if other ranks write copies of all its boxes."""
    boxes: Boxes = {}

    def take(path: cut.Path, tensor: torch.Tensor) -> Any:
        if not isinstance(tensor, DTensor):
            return tensor
        key = json.dumps(path)
        local = tensor.to_local().detach()
        if local.numel() and _first_copy(tensor):
            boxes[key] = (cut.box(tensor), local)
        return (cut.MARK, key, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))

    rest = cut.replace(state, take)
    if rank == 0:
        return {"boxes": boxes, "rest": rest}
    return {"boxes": boxes} if boxes else {}


def _first_copy(tensor: DTensor) -> bool:
    """Whether this rank writes its box: along a replicated axis of the mesh, all ranks hold the same box."""
    places: Sequence[int] = tensor.device_mesh.get_coordinate() or []
    return not any(
        place and isinstance(layout, Replicate) for place, layout in zip(places, tensor.placements, strict=True)
    )


def rest_of(path: Path) -> dict[str, Any]:
    """The state in the folder's first file, with `Absent` for each tensor that the ranks have written in boxes."""
    rest: dict[str, Any] = read(path / FIRST)["rest"]
    return rest


def read(file: Path) -> dict[str, Any]:
    """The content of a verified file, memory-mapped, so that only the values in use are read from the disk."""
    content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    return content


def together(path: Path, manifest: Manifest) -> dict[str, Any]:
    """The whole state of a verified checkpoint whose files are all in the folder `path`."""
    shards = Shards(path, dict.fromkeys(manifest.files, 0), set(manifest.files), alone=True)
    state = rest_of(path)
    wants: dict[str, Box] = {}

    def want(_: cut.Path, value: Any) -> None:
        if isinstance(value, Absent):
            wants[value.key] = tuple((0, size) for size in value.shape)

    cut.replace(state, want)
    got = shards.fetch(wants)
    whole: dict[str, Any] = cut.replace(state, lambda _, value: got[value.key] if isinstance(value, Absent) else value)
    return whole


class Shards:
    """The verified files of a checkpoint. `holders`: for each file, a rank that can read it. `here`: this rank's files.

    `path` is the checkpoint's folder on this rank's disk. With `alone`, no other rank is asked.
    """

    def __init__(
        self,
        path: Path,
        holders: Mapping[str, int],
        here: set[str],
        group: dist.ProcessGroup | None = None,
        alone: bool = False,
    ) -> None:
        self._path, self._holders, self._group = path, holders, group
        self._rank, self._world = (0, 1) if alone else exchange.rank_and_world(group)
        self._files: dict[str, Boxes] = {name: read(path / name)["boxes"] for name in sorted(here)}

    def fetch(self, wants: Mapping[str, Box]) -> dict[str, torch.Tensor]:
        """This rank's wanted box of each tensor; all ranks call this. Raises CheckpointError if a part is missing."""
        got: dict[str, torch.Tensor] = {}
        filled: dict[str, dict[Box, int]] = {key: {} for key in wants}

        def fill(key: str, common: Box, values: torch.Tensor) -> None:
            target = got.setdefault(key, torch.empty([high - low for low, high in wants[key]], dtype=values.dtype))
            cut.inside(target, _within(common, wants[key])).copy_(values)
            filled[key][common] = values.numel()

        for boxes in self._files.values():
            for key, (box, values) in boxes.items():
                if key in wants and (common := _common(box, wants[key])) is not None:
                    fill(key, common, cut.inside(values, _within(common, box)))
        if self._world > 1:
            self._exchange(wants, fill)
        for key, box in wants.items():
            size = math.prod(high - low for low, high in box)
            if sum(filled[key].values()) != size or not _apart(filled[key]):
                raise CheckpointError(
                    f"{self._path}: {key} is incomplete in the files, or two files have the same part of it", ACCEPTED
                )
            if not size:
                got[key] = self._nothing(key, box)
        return got

    def _nothing(self, key: str, box: Box) -> torch.Tensor:
        known = (boxes[key][1].dtype for boxes in self._files.values() if key in boxes)
        return torch.empty([high - low for low, high in box], dtype=next(known, torch.float32))

    def _exchange(self, wants: Mapping[str, Box], fill: Any) -> None:
        """Send the other ranks what their disks do not have.

        All go through the same list, so no two wait for each other.
        """
        index = {
            name: {key: (box, str(values.dtype).removeprefix("torch.")) for key, (box, values) in boxes.items()}
            for name, boxes in self._files.items()
            if self._holders[name] == self._rank
        }
        mine = (dict(wants), sorted(self._files), index)
        everyone = exchange.all_of(mine, self._group)
        for name, holder in sorted(self._holders.items()):
            lacking = [rank for rank, (_, files, _) in enumerate(everyone) if name not in files]
            for key, (box, dtype) in everyone[holder][2][name].items() if lacking else ():
                for rank in lacking:
                    if key not in everyone[rank][0] or (common := _common(box, everyone[rank][0][key])) is None:
                        continue
                    if self._rank == holder:
                        values = cut.inside(self._files[name][key][1], _within(common, box)).contiguous()
                        dist.send(values.flatten().view(torch.uint8), rank, self._group)
                    elif self._rank == rank:
                        values = torch.empty([high - low for low, high in common], dtype=getattr(torch, dtype))
                        dist.recv(values.view(-1).view(torch.uint8), holder, self._group)
                        fill(key, common, values)


def _common(box: Box, other: Box) -> Box | None:
    """The box in which both boxes overlap; None if they do not."""
    if len(box) != len(other):
        return None
    common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, other, strict=True))
    return common if all(low < high for low, high in common) else None


def _apart(boxes: Iterable[Box]) -> bool:
    """Whether no two boxes overlap: if so, boxes whose sizes add up to the whole leave nothing out."""
    ordered = sorted(boxes)
    for index, box in enumerate(ordered):
        for other in ordered[index + 1 :]:
            if box and other[0][0] >= box[0][1]:
                break
            if _common(box, other) is not None:
                return False
    return True


def _within(common: Box, box: Box) -> Box:
    """The position of `common` in a tensor that holds the box `box` of the whole."""
    return tuple((low - start, high - start) for (low, high), (start, _) in zip(common, box, strict=True))
