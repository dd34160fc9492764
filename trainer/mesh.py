"""The mesh of a run: how its ranks share the data and the model, from the text of `--mesh`. Pure, without torch.

The names and their order are torchtitan's: `dp_replicate` copies of the model, each split into `dp_shard` parts, whose
layers are computed by `tp` ranks together. The ranks of one `tp` group have consecutive numbers and read the same
samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from muster.errors import Refused

AXES = ("dp_replicate", "dp_shard", "tp")
# This example works for any number of ranks.
EXAMPLE = "--mesh dp_shard=-1 (-1: all remaining ranks; the product of all sizes must be the number of ranks)"
_LATER = {"pp": "pipeline", "cp": "context", "ep": "expert"}


@dataclass(frozen=True)
class Mesh:
    """The size of each axis. Their product is the world size."""

    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1

    @property
    def data_world(self) -> int:
        """The number of rank groups that share the samples of a batch."""
        return self.dp_replicate * self.dp_shard

    def data_rank(self, rank: int) -> int:
        """Which share of the samples `rank` takes."""
        return rank // self.tp

    def counts(self, rank: int) -> bool:
        """Whether the samples of `rank` count for its tensor-parallel group: its peers read the same ones."""
        return rank % self.tp == 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """The sizes in the order of AXES."""
        return self.dp_replicate, self.dp_shard, self.tp

    @property
    def copies(self) -> bool:
        """Whether every rank has the whole model, as in DDP."""
        return self.dp_shard == self.tp == 1

    def __str__(self) -> str:
        return ",".join(f"{axis}={getattr(self, axis)}" for axis in AXES if getattr(self, axis) > 1) or "dp_replicate=1"


def sizes(text: str) -> dict[str, int]:
    """The sizes in `text`; -1 is the size to compute from the others. Raises Refused."""
    given: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        axis, equals, number = (word.strip() for word in part.partition("="))
        if axis in _LATER:
            raise Refused(f"--mesh {axis}: the trainer has no {_LATER[axis]} parallelism", "muster docs which-mesh")
        if axis not in AXES or not equals:
            raise Refused(f"--mesh: unknown part {part!r}; the axes are {', '.join(AXES)}", EXAMPLE)
        if axis in given:
            raise Refused(f"--mesh: {axis} is given twice", EXAMPLE)
        if number != "-1" and not (number.isdecimal() and number.isascii() and 0 < int(number) < 10**6):
            raise Refused(f"--mesh {axis}: a size must be a whole number from 1 up, or -1, got {number!r}", EXAMPLE)
        given[axis] = int(number)
    if list(given.values()).count(-1) > 1:
        raise Refused("--mesh: only one size may be -1", EXAMPLE)
    return given


def parse(text: str, world: int) -> Mesh:
    """The mesh that `text` describes for `world` ranks; without text, one copy of the model on each rank (DDP).

    Raises Refused if the product of the sizes is not the world size.
    """
    if not text:
        return Mesh(dp_replicate=world)
    given = sizes(text)
    product = math.prod(map(abs, given.values()))
    open_axis = next((axis for axis, size in given.items() if size == -1), None)
    if open_axis and world % product == 0:
        return Mesh(**{**given, open_axis: world // product})
    if open_axis or product != world:
        what = f"{world} ranks cannot be divided by {product}" if open_axis else f"{product} ranks"
        raise Refused(f"--mesh {text}: {what}, but the run has {world}", f"--mesh {_fitting(given, world)}")
    return Mesh(**given)


def _fitting(given: Mapping[str, int], world: int) -> str:
    """Suggest a mesh for `world` ranks that keeps those of the `given` sizes that divide their number."""
    if given.keys() == {"dp_replicate"}:
        return "dp_replicate=-1"
    left, fitting = world, []
    # The size of the model requires tp and dp_shard. So this drops the copies before it drops the parts of a copy.
    for axis, least in (("tp", 1), ("dp_replicate", 2)):
        size = given.get(axis, 1)
        if size > 1 and left % size == 0 and left // size >= least:
            left //= size
            fitting.append(f"{axis}={size}")
    if left > 1 or not fitting:
        fitting.append("dp_shard=-1")
    return ",".join(sorted(fitting, key=lambda part: AXES.index(part.partition("=")[0])))
